"""The settings of what a service tells of single requests. OTEL_* say the rest."""

from __future__ import annotations

from pydantic_settings import BaseSettings

from deployments.observability.logs import LogFormat


class TelemetrySettings(BaseSettings):
    """Fields of ServiceConfig."""

    log_format: LogFormat = LogFormat.TEXT
    """json: one object per line, with the ids of trace and request."""
    request_log: bool = True
    """Whether ingresses log one line for every request, without its text."""
