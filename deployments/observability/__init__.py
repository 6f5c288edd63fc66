"""Logs, metrics, traces and dashboards of a running service."""
