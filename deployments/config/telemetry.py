"""The settings of what a service logs of single requests. OTEL_* set the rest."""

from __future__ import annotations

from pydantic_settings import BaseSettings

from deployments.observability.logs import LogFormat


class TelemetrySettings(BaseSettings):
    """Fields of ServiceConfig."""

    log_format: LogFormat = LogFormat.TEXT
    """json: one object per line, with trace and request IDs."""
    request_log: bool = True
    """Whether ingresses log one line for every request, without its text."""
