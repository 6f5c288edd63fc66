"""Totals that only grow, and what came to them between two readings."""
