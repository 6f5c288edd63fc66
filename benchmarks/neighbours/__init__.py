"""Longest gap of a stream next to requests that are made to hold it up."""
