"""The metrics, by what they are of; registry.py has them all."""
