"""Where the lines of our own loggers go, and how those of a process are written.

Without this Python drops what is below a warning. A Serve replica's lines go where Serve's go, the
log file of the replica; every other process writes to its standard error, which Ray keeps.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from deployments.observability.json_logs import JsonFormatter
from deployments.observability.process import ProcessName

REQUESTS = "specdec.requests"
"""Logger of the line that an ingress writes for every request."""
_OURS = ("deployments", "specdec_core", REQUESTS)
_SERVE = "ray.serve"
_TEXT = "%(levelname)s %(asctime)s %(name)s: %(message)s"


class LogFormat(StrEnum):
    """How a line of a log is written."""

    TEXT = "text"
    JSON = "json"


def begin_logs(process: ProcessName, log_format: LogFormat) -> None:
    """Of a process that is no Serve replica: INFO and above, to its standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_TEXT))
    _write([handler], process, log_format)


def begin_replica_logs(
    process: ProcessName, log_format: LogFormat, *, tells_requests: bool = True
) -> None:
    """Of a Serve replica, whose lines of Serve's are then written like ours."""
    _write(logging.getLogger(_SERVE).handlers, process, log_format)
    if not tells_requests:
        logging.getLogger(REQUESTS).setLevel(logging.WARNING)


def _write(handlers: list[logging.Handler], process: ProcessName, log_format: LogFormat) -> None:
    if log_format is LogFormat.JSON:
        for handler in handlers:
            _writer(handler).setFormatter(JsonFormatter(process))
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers[:] = handlers
        logger.setLevel(logging.INFO)
        logger.propagate = False


def _writer(handler: logging.Handler) -> logging.Handler:
    """Behind the memory that Serve collects lines in."""
    target: logging.Handler | None = getattr(handler, "target", None)
    return handler if target is None else target
