"""What happened in a world: counts of everything that can happen, and on demand a trace of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from deployments.coordinator.outbox import Flush
from specdec_core.leases import GroupLease, GroupResult, LeaseRow, RowResult
from specdec_core.pool import SendLease


class Violation(AssertionError):  # noqa: N818
    """Something that must never happen has."""


class Record:
    """Counts by kind; lines only where a trace is wanted."""

    def __init__(self, now: Callable[[], float], *, traces: bool) -> None:
        self.messages: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.transitions: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.lines: list[str] = []
        self._now = now
        self._traces = traces

    def message(self, name: str, direction: str, message: Any) -> None:
        self.messages[type(message).__name__] += 1
        if self._traces:
            self._write(f"{name} {direction} {_text(message)}")

    def fault(self, kind: str, name: str) -> None:
        self.faults[kind] += 1
        self.note(f"FAULT {kind} {name}")

    def note(self, line: str) -> None:
        if self._traces:
            self._write(line)

    def _write(self, line: str) -> None:
        self.lines.append(f"{self._now():10.6f} {line}")


def _text(message: Any) -> str:
    if isinstance(message, SendLease):
        return _lease(message.lease)
    if isinstance(message, GroupResult):
        rows = " ".join(_answer(row) for row in message.rows)
        return f"result {message.lease_id} of epoch {message.epoch}: {rows}"
    if isinstance(message, Flush):
        news = [
            f"{d.event.request_id}[{d.event.index}]{list(d.event.token_ids)}"
            f"{d.event.finish_reason or ''}{d.failure.kind if d.failure else ''}"
            for d in message.deliveries
        ]
        return " ".join(["flush", *news, *(["state"] if message.state else [])])
    if hasattr(message, "request"):
        request = message.request
        emitted = list(request.emitted_token_ids)
        return f"submit {request.request_id} behind {emitted} resume={message.resume}"
    return str(message)


def _lease(lease: GroupLease) -> str:
    return f"lease {lease.lease_id} {lease.role}: " + " ".join(_row(row) for row in lease.rows)


def _row(row: LeaseRow) -> str:
    new = f"{row.sequence_id}@{row.base_len}+{len(row.new_ids)}"
    return f"{new}?{row.num_choices}{list(row.proposal) if row.proposal else ''}"


def _answer(row: RowResult) -> str:
    return f"{row.sequence_id}:{row.status}@{row.cached_len}{list(row.tokens)}"
