"""Write a log record as one line of JSON, with the IDs that join it to traces and answers."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from opentelemetry.trace import format_span_id, format_trace_id

from deployments.observability.process import ProcessName
from deployments.observability.tracing.requests import current_scope

_REQUEST_ID = "specdec_request_id"
"""Record attribute of our request ID. Serve sets its own ID as `request_id` on every record."""
_WORD = re.compile(r"[\w./:,+-]+", re.ASCII)
"""A value that is not quoted: no one can read it as several values or as another line."""


def about(request_id: str) -> dict[str, str]:
    """Return `extra` for a log line about a request other than the one that the task works for."""
    return {_REQUEST_ID: request_id}


@dataclass(frozen=True, slots=True)
class Fields:
    """Log message with named values: `name=value` in text, members of the object in JSON."""

    what: str
    """The message in JSON, the first word in text."""
    values: Mapping[str, str | int | float]

    def __str__(self) -> str:
        words = [self.what]
        for name, value in self.values.items():
            is_plain = not isinstance(value, str) or _WORD.fullmatch(value)
            words.append(f"{name}={value if is_plain else json.dumps(value)}")
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """Formats the log records of one process."""

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
        said: object = record.msg
        named = said if isinstance(said, Fields) else None
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": named.what if named else record.getMessage(),
            **_ids(record),
            **(named.values if named else {}),
            **self._process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _ids(record: logging.LogRecord) -> dict[str, str]:
    """Return the known IDs of the record's trace, span and request."""
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
