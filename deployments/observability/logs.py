"""Set up our own loggers: where their lines go and how they are written.

Without this, Python drops lines below a warning. A Serve replica's lines go to Serve's log file of
the replica. Every other process writes to its standard error, which Ray keeps.
"""

from __future__ import annotations

import logging

from deployments.names import LogFormat
from deployments.observability.json_logs import JsonFormatter
from deployments.observability.process import ProcessName

REQUESTS = "specdec.requests"
"""Logger of the line that an ingress writes for every request."""
_OURS = ("deployments", "specdec_core", REQUESTS)
_SERVE = "ray.serve"
_TEXT = "%(levelname)s %(asctime)s %(name)s: %(message)s"


def begin_logs(process: ProcessName, log_format: LogFormat) -> None:
    """Log INFO and above to standard error, in a process that is not a Serve replica."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_TEXT))
    _write([handler], process, log_format)


def begin_replica_logs(
    process: ProcessName, log_format: LogFormat, *, logs_requests: bool = True
) -> None:
    """Log to Serve's handlers, in a Serve replica. Serve's lines are then written like ours."""
    _write(logging.getLogger(_SERVE).handlers, process, log_format)
    if not logs_requests:
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
    """Return the handler that writes. Serve may collect lines in memory in front of it."""
    target: logging.Handler | None = getattr(handler, "target", None)
    return handler if target is None else target
