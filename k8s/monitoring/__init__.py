"""Dashboards and rules for Grafana and Prometheus. `make dashboards` writes them."""
