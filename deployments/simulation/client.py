"""A client of one request: it compares every token with plain decoding as it comes."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from deployments.errors import DeadlineError, PoolUnavailableError, RequestFailedError
from deployments.simulation.record import Violation
from deployments.simulation.tokens import Script
from specdec_core.errors import InvalidRequestError, QueueFullError
from specdec_core.request import FinishReason, Request, TokenEvent


class Outcome(StrEnum):
    """How a request ended. All but DONE are documented refusals."""

    DONE = "done"
    CANCELLED = "cancelled"
    QUEUE_FULL = "queue_full"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    """The coordinator was away for too long, or other targets than those that began it are left."""
    ROW_FAILED = "row_failed"
    TIMED_OUT = "timed_out"
    INGRESS_GONE = "ingress_gone"


class Client:
    """Hears one request to its end."""

    def __init__(self, request: Request, is_invalid: bool, now: Callable[[], float]) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.tokens: list[int] = []
        self.began_at = now()
        self.first_at: float | None = None
        self.ended_at: float | None = None
        self.may_fail = False
        """One of its rows was made to fail."""
        self.meets_foreign = False
        """A target of other bits offered itself meanwhile: it may have been alone for a moment."""
        self.scripts: list[Script] = []
        """What it may be answered: plain decoding, by the fingerprint of the targets."""
        self._is_invalid = is_invalid
        self._now = now

    def hear(self, event: TokenEvent) -> None:
        if self.outcome is not None:
            raise self._violation("e", f"hears {event} behind its end")
        if event.index != len(self.tokens):
            raise self._violation("e", f"hears of place {event.index} at {len(self.tokens)}")
        if self.first_at is None:
            self.first_at = self._now()
        self.tokens += event.token_ids
        told = tuple(self.tokens)
        if not any(script.tokens[: len(told)] == told for script in self.scripts):
            plain = [script.tokens for script in self.scripts]
            raise self._violation("c", f"was told {told}, plain decoding says {plain}")
        if event.finish_reason is not None:
            self._finish(told, event.finish_reason)

    def fail(self, error: Exception) -> None:
        if isinstance(error, QueueFullError):
            self._refuse(Outcome.QUEUE_FULL, error, not self.tokens)
        elif isinstance(error, InvalidRequestError):
            self._refuse(Outcome.INVALID, error, self._is_invalid)
        elif isinstance(error, DeadlineError):
            self._refuse(Outcome.TIMED_OUT, error, self._is_overdue)
        elif isinstance(error, RequestFailedError):
            self._refuse(Outcome.ROW_FAILED, error, self.may_fail)
        elif isinstance(error, PoolUnavailableError):
            is_change = str(error) == AWAY or len(self.scripts) > 1 or self.meets_foreign
            self._refuse(Outcome.UNAVAILABLE, error, is_change)
        elif isinstance(error, ConnectionError):
            self._end(Outcome.INGRESS_GONE)
        else:
            raise self._violation("g", f"ended with {error!r}")

    def cancel(self) -> None:
        self._end(Outcome.CANCELLED)

    @property
    def _is_overdue(self) -> bool:
        timeout_s = self.request.timeout_s
        return timeout_s is not None and self._now() - self.began_at >= timeout_s

    def _finish(self, told: tuple[int, ...], reason: FinishReason) -> None:
        if not any(script.tokens == told and script.reason is reason for script in self.scripts):
            raise self._violation("c", f"ended by {reason} behind {told}")
        self._end(Outcome.DONE)

    def _refuse(self, outcome: Outcome, error: Exception, is_documented: bool) -> None:
        if not is_documented:
            raise self._violation("g", f"was refused without a reason: {error}")
        self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        if self.outcome is not None:
            raise self._violation("e", f"ends twice, {self.outcome} and {outcome}")
        self.outcome = outcome
        self.ended_at = self._now()

    def _violation(self, letter: str, text: str) -> Violation:
        return Violation(f"({letter}) {self.request.request_id} {text}")


AWAY = "the coordinator is away"
"""What an ingress says that gives up."""
