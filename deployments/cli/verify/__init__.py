"""`specdec verify`: compare every algorithm with plain decoding, token for token."""
