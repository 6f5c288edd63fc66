"""Attention backends over a paged KV cache, and the metadata of a pass."""
