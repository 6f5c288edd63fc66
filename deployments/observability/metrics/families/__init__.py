"""The metrics by subject. registry.py has them all.

A new metric is one entry in a module of this folder. Then `make dashboards` writes docs/metrics.md.
A metric of each replica is a field of Occupancy instead (specdec_core/messages.py).
"""
