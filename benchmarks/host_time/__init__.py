"""Measure what the host does between two passes, against a modelled device instead of a GPU."""
