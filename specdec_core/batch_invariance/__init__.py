"""Layers whose results do not depend on the other rows of a batch."""
