"""Seeded defects: each must make a named test fail (`make mutants`)."""
