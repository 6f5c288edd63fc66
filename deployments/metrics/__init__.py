"""Metrics: one registry of them, and what tells their values.

PoolStatus is the only source. /metrics (page.py), Ray's port, OTLP and the log all read it.
"""
