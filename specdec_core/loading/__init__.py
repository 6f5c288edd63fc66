"""Loads a model, plans its memory, times its passes and checks its numerics."""
