"""Traces of single requests in a running service: OpenTelemetry spans, and log lines."""
