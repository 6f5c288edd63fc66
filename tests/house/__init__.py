"""Checks of how the code is written, and a count of its lines."""
