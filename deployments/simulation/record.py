"""Counts of everything that can happen in a world, and on request a trace of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from deployments.wire.lease_codec import lease_from_pb, result_from_pb
from deployments.wire.request_codec import event_from_pb, submit_from_pb
from specdec.v1 import coordination_pb2 as pb
from specdec_core.messages import GroupLease, LeaseRow, RowResult

_ANY = 2**31
"""A result is traced although a coordinator would refuse it."""


class Violation(AssertionError):  # noqa: N818
    """An event that must never happen has happened."""


class Record:
    """Counts by kind, and trace lines if a trace is wanted."""

    def __init__(self, now: Callable[[], float], *, traces: bool) -> None:
        self.messages: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.transitions: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.lines: list[str] = []
        self._now = now
        self._traces = traces

    def message(self, name: str, direction: str, message: Any) -> None:
        self.messages[f"{type(message).__name__}.{kind_of(message)}"] += 1
        if self._traces:
            self._write(f"{name} {direction} {_text(message)}")

    def fault(self, kind: str, name: str) -> None:
        self.faults[kind] += 1
        self.note(f"FAULT {kind} {name}")

    def note(self, line: str) -> None:
        if self._traces:
            self._write(line)

    def close(self) -> None:
        """Release the world, which is over."""
        now = self._now()
        self._now = lambda: now

    def _write(self, line: str) -> None:
        self.lines.append(f"{self._now():10.6f} {line}")


def kind_of(message: Any) -> str:
    """Return the kind of a message of any stream."""
    if not isinstance(message, pb.GenerateDown):
        return message.WhichOneof("kind") or "beat"
    if message.events:
        return "events"
    if message.HasField("state"):
        return "state"
    return "aborts" if message.aborts else "silence"


MESSAGE_KINDS = (
    *(f"GenerateUp.{kind}" for kind in ("submit", "abort", "times")),
    *(f"GenerateDown.{kind}" for kind in ("events", "state", "aborts", "silence")),
    *(f"WorkUp.{kind}" for kind in ("register", "result", "heartbeat", "reset_done", "drain")),
    *(f"WorkDown.{k}" for k in ("registered", "lease", "free", "reset", "drained", "beat")),
)
"""All kinds of messages but `pace`, because no world holds events back."""


def _text(message: Any) -> str:
    kind = kind_of(message)
    if kind == "lease":
        return _lease(lease_from_pb(message.lease, ""))
    if kind == "result":
        result = result_from_pb(message.result, "", max_cached_len=_ANY, vocab_size=_ANY)
        rows = " ".join(_answer(row) for row in result.rows)
        return f"result {result.lease_id} of epoch {result.epoch}: {rows}"
    if kind == "events":
        return " ".join(["events", *map(_event, message.events)])
    if kind == "submit":
        request = submit_from_pb(message.submit)
        emitted = list(request.emitted_token_ids)
        return f"submit {request.request_id} behind {emitted} resume={message.submit.resume}"
    return f"{kind} {' '.join(str(message).split())}"


def _event(message: pb.TokenEvent) -> str:
    event, failure = event_from_pb(message)
    place = f"{event.request_id}[{event.index}]{list(event.token_ids)}"
    return f"{place}{event.finish_reason or ''}{failure.kind if failure else ''}"


def _lease(lease: GroupLease) -> str:
    return f"lease {lease.lease_id} {lease.role}: " + " ".join(_row(row) for row in lease.rows)


def _row(row: LeaseRow) -> str:
    new = f"{row.sequence_id}@{row.base_len}+{len(row.new_ids)}"
    return f"{new}?{row.num_choices}{list(row.proposal) if row.proposal else ''}"


def _answer(row: RowResult) -> str:
    return f"{row.sequence_id}:{row.status}@{row.cached_len}{list(row.tokens)}"
