"""Samples tokens from logits. Draft, target and autoregressive decoding sample the same tokens."""
