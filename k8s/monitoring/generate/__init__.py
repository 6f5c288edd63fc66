"""Dashboards, rules and the list of metrics, written from the registry: `make dashboards`."""
