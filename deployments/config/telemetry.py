"""Declares what a service logs of single requests. OTEL_* set the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deployments.config.flags import flag
from deployments.names import LogFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """Logs of a service."""

    PANEL: ClassVar[str] = "Address"

    log_format: LogFormat = flag(
        LogFormat.TEXT,
        "Format of log lines. `json` writes each line as an object, with trace and "
        "request. Default: text.",
        metavar="[text|json]",
    )
    request_log: bool = flag(
        True,
        "Log one line per request, with key name, tokens, times and finish reason, "
        "without its text. Default: on.",
        "--request-log/--no-request-log",
    )
