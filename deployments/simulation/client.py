"""A client of one request: it compares every token with plain decoding as it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from deployments.errors import DeadlineError, PoolUnavailableError, RequestFailedError
from deployments.ingress.open_requests import parted
from deployments.ingress.scheduler_client import AWAY, NO_TARGET
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
    """The coordinator was away for too long, or the only targets left differ from those that began
    it."""
    ROW_FAILED = "row_failed"
    TIMED_OUT = "timed_out"
    INGRESS_GONE = "ingress_gone"


class Client:
    """Receives one request's events to its end, over one connection or more."""

    def __init__(self, request: Request, is_invalid: bool, now: Callable[[], float]) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.tokens: list[int] = []
        self.began_at = now()
        self.first_at: float | None = None
        self.ended_at: float | None = None
        self.may_fail = False
        """True if one of its rows was made to fail."""
        self.meets_foreign = False
        """True if a target with another fingerprint registered meanwhile; for a moment it may have
        been the only target."""
        self.scripts: list[Script] = []
        """Permitted answers: plain decoding, one per fingerprint of the targets."""
        self.comes_back = False
        """True if the client resumes with its tokens when its connection breaks."""
        self._is_spoilt = False
        """True once the client has brought back other tokens than it received."""
        self._num_heard = 0
        """Number of tokens received over its present connection."""
        self._num_connections = 1
        self._is_invalid = is_invalid
        self._now = now

    def hear(self, event: TokenEvent) -> None:
        if self.outcome is not None:
            raise self._violation("e", f"hears {event} behind its end")
        for part in parted(event, len(self.request.resume_token_ids)):
            self._take(part)
        if event.finish_reason is not None:
            self._finish(tuple(self.tokens), event.finish_reason)

    def cut(self) -> None:
        """End the request, or prepare to resume it, because its ingress has died."""
        if self.comes_back:
            self.comes_back = False
        else:
            self._end(Outcome.INGRESS_GONE)

    def resume(self, brought: tuple[int, ...]) -> None:
        """Send the request again, with `brought` as the token IDs received so far."""
        name = f"{self.request.request_id.partition('+')[0]}+{self._num_connections}"
        self.request = replace(self.request, request_id=name, resume_token_ids=brought)
        self._is_spoilt = self._is_spoilt or brought != tuple(self.tokens)
        # By luck, targets with another fingerprint may choose just what was spoilt.
        self.tokens = list(brought)
        self.began_at = self._now()
        self._num_connections += 1
        self._num_heard = 0

    def wrong_for(self, token_id: int, vocab_size: int) -> int:
        """Return another ID that does not end the answer. An ID that ends it would be found before
        the service is asked."""
        stops = self.request.params.stop_token_ids
        others = [(token_id + step) % vocab_size for step in range(1, vocab_size)]
        return next(other for other in others if other not in stops)

    def _take(self, part: TokenEvent) -> None:
        """Check an event. Tokens that the client brought back must come again unchanged. All others
        must be those of plain decoding."""
        if part.index != self._num_heard:
            raise self._violation("e", f"hears of place {part.index} at {self._num_heard}")
        self._num_heard += len(part.token_ids)
        brought = self.request.resume_token_ids[part.index : self._num_heard]
        if part.token_ids[: len(brought)] != brought:
            raise self._violation("c", f"brought back {brought}, hears {part.token_ids}")
        if brought:
            return
        if self.first_at is None:
            self.first_at = self._now()
        self.tokens += part.token_ids
        received = tuple(self.tokens)
        if not any(script.tokens[: len(received)] == received for script in self.scripts):
            plain = [script.tokens for script in self.scripts]
            raise self._violation("c", f"received {received}, plain decoding says {plain}")

    def fail(self, error: Exception) -> None:
        if isinstance(error, QueueFullError):
            self._refuse(Outcome.QUEUE_FULL, error, not self._num_heard)
        elif isinstance(error, InvalidRequestError):
            self._refuse(Outcome.INVALID, error, self._is_invalid or self._may_disagree)
        elif isinstance(error, DeadlineError):
            self._refuse(Outcome.TIMED_OUT, error, self._is_overdue)
        elif isinstance(error, RequestFailedError):
            self._refuse(Outcome.ROW_FAILED, error, self.may_fail)
        elif isinstance(error, PoolUnavailableError):
            self._refuse(Outcome.UNAVAILABLE, error, str(error) in _AWAY or self._meets_others)
        elif isinstance(error, ConnectionError):
            self.cut()
        else:
            raise self._violation("g", f"ended with {error!r}")

    def cancel(self) -> None:
        self._end(Outcome.CANCELLED)

    @property
    def _meets_others(self) -> bool:
        """True if targets have another fingerprint than those that began its answer."""
        return len(self.scripts) > 1 or self.meets_foreign

    @property
    def _may_disagree(self) -> bool:
        """True if the service may find that the tokens brought back belong to another request."""
        return bool(self.request.resume_token_ids) and (self._is_spoilt or self._meets_others)

    @property
    def _is_overdue(self) -> bool:
        timeout_s = self.request.timeout_s
        return timeout_s is not None and self._now() - self.began_at >= timeout_s

    def _finish(self, received: tuple[int, ...], reason: FinishReason) -> None:
        if not any(
            script.tokens == received and script.reason is reason for script in self.scripts
        ):
            raise self._violation("c", f"ended by {reason} after {received}")
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


_AWAY = (AWAY, NO_TARGET)
"""Messages of an ingress that gives up."""
