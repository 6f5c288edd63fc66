"""What a running service tells of single requests: spans of OpenTelemetry, and log lines."""
