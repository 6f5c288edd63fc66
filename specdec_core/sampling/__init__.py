"""Chooses tokens from logits: the same tokens for draft, target and plain decoding."""
