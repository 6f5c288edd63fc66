"""A log record as one JSON object in one line, with the ids that join it to traces and answers."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any

from opentelemetry.trace import format_span_id, format_trace_id

from deployments.telemetry.process import ProcessName
from deployments.telemetry.scope import current_scope

_REQUEST_ID = "specdec_request_id"
"""`request_id` is Serve's own id, which it sets on every record."""


def about(request_id: str) -> dict[str, str]:
    """`extra` of a line about another request than the task works for."""
    return {_REQUEST_ID: request_id}


class JsonFormatter(logging.Formatter):
    """Of one process."""

    def __init__(self, process: ProcessName) -> None:
        super().__init__()
        self._process: dict[str, Any] = {
            "process": process.role.value,
            "replica_id": process.id,
            "pid": os.getpid(),
        }
        if process.cell is not None:
            self._process["cell"] = process.cell

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids(record),
            **self._process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _ids(record: logging.LogRecord) -> dict[str, str]:
    """Those that are known."""
    ids: dict[str, str] = {}
    scope = current_scope()
    if scope is not None and scope.context.is_valid:
        ids["trace_id"] = format_trace_id(scope.context.trace_id)
        ids["span_id"] = format_span_id(scope.context.span_id)
    request_id = getattr(record, _REQUEST_ID, "") or (scope.request_id if scope else "")
    if request_id:
        ids["request_id"] = request_id
    for name, attribute in (("serve_request_id", "request_id"), ("route", "route")):
        if value := getattr(record, attribute, ""):
            ids[name] = str(value)
    return ids
