"""What came back for a request: every attempt with its ids, its text, and when they arrived."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.chaos.asked import Asked


class Output(NamedTuple):
    """What two runs are compared by."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt ended without an answer, as its client sees it."""

    kind: str
    """"HTTP 503", "gRPC UNAVAILABLE", "error event", "refused", "lost" or "silent"."""
    message: str
    says_retry: bool
    """It names itself as worth another attempt."""

    @property
    def is_broken_connection(self) -> bool:
        """All that a client can see of a proxy that dies: nobody is left to say more."""
        return self.kind in ("refused", "lost")


class AttemptError(Exception):
    """Raised by a client for an attempt that failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(eq=False, slots=True)
class Attempt:
    """One try."""

    asked: Asked
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str = ""
    arrivals_s: list[float] = field(default_factory=list)
    """Of every piece that brought a token."""
    failure: Failure | None = None

    def take(self, token_ids: Sequence[int], text: str, finish_reason: str | None) -> None:
        self.token_ids += token_ids
        self.text += text
        if token_ids:
            self.arrivals_s.append(time.monotonic())
        if finish_reason:
            self.finish_reason = finish_reason

    @property
    def output(self) -> Output:
        return Output(tuple(self.token_ids), self.text, self.finish_reason)


@dataclass(eq=False, slots=True)
class Answer:
    """A request until it succeeded; the last attempt is the one that did, if any."""

    asked: Asked
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def output(self) -> Output | None:
        last = self.attempts[-1]
        return last.output if last.failure is None else None

    @property
    def taken_s(self) -> float:
        """Of all attempts, once the last has ended."""
        ended_s = self.attempts[-1].ended_s
        assert ended_s is not None
        return ended_s - self.attempts[0].began_s
