"""Totals of requests that the coordinator counts outside the scheduler: beginnings, refusals,
failures."""

from __future__ import annotations

from collections import Counter

from deployments.errors import Failure, FailureKind
from deployments.observability.request_observer import (
    EndReason,
    LiveRequest,
    RequestEnd,
    RequestObserver,
)
from deployments.wire.counter_names import FAILED, REJECTED


class RequestTotals(RequestObserver):
    """Totals since the coordinator's start, at `started_unix_s` of the wall clock."""

    def __init__(self, started_unix_s: float = 0.0) -> None:
        self.started_unix_s = started_unix_s
        self.num_prompt_tokens = 0
        self._rejected: Counter[FailureKind] = Counter()
        self._failed: Counter[FailureKind] = Counter()

    def begin(self, live: LiveRequest) -> None:
        if not live.is_resumed:
            self.num_prompt_tokens += len(live.request.prompt_token_ids)

    def end(self, live: LiveRequest, end: RequestEnd) -> None:
        if end.failure is not None and end.reason is EndReason.FINISHED:
            self._failed[end.failure.kind] += 1

    def refused(self, request_id: str, failure: Failure) -> None:
        self._rejected[failure.kind] += 1

    def counters(self) -> dict[str, int]:
        """Return the totals under the names of PoolStatus."""
        rejected = {f"{REJECTED}{kind}": count for kind, count in self._rejected.items()}
        failed = {f"{FAILED}{kind}": count for kind, count in self._failed.items()}
        return {"num_prompt_tokens": self.num_prompt_tokens} | rejected | failed
