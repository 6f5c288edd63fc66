"""Metrics: one registry of them, and what tells their values.

PoolStatus is the only source. /metrics (export_prometheus.py), Ray's port, OTLP
and the log read it.
"""
