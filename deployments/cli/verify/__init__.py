"""`specdec verify`: every algorithm beside plain decoding, token for token."""
