"""Totals of requests that the coordinator counts outside the scheduler: beginnings, refusals,
failures."""

from __future__ import annotations

from collections import Counter

from deployments.errors import Failure, FailureKind, failure_of, failure_of_event
from deployments.observability.metrics.families.requests import FAILED, REJECTED
from deployments.wire.counter_names import AUDITED, DIVERGED
from specdec_core.config import Numerics
from specdec_core.request import Request, TokenEvent


class RequestTotals:
    """Totals since the coordinator's start, at `started_unix_s` of the wall clock."""

    def __init__(self, started_unix_s: float = 0.0) -> None:
        self.started_unix_s = started_unix_s
        self.num_prompt_tokens = 0
        self._rejected: Counter[FailureKind] = Counter()
        self._failed: Counter[FailureKind] = Counter()

    def began(self, request: Request, *, is_resumed: bool) -> None:
        """Count a request that the scheduler has taken. A resumed request was counted when it first
        began."""
        if not is_resumed:
            self.num_prompt_tokens += len(request.prompt_token_ids)

    def refused(self, error: Exception) -> Failure:
        """Count a refusal and return the message for the request that `error` kept from
        beginning."""
        failure = failure_of(error)
        self._rejected[failure.kind] += 1
        return failure

    def failed(self, event: TokenEvent) -> Failure:
        """Count a failure and return the message for a request that the scheduler has ended with an
        error."""
        failure = failure_of_event(event)
        self._failed[failure.kind] += 1
        return failure

    def counters(self) -> dict[str, int]:
        """Return the totals under the names of PoolStatus."""
        rejected = {f"{REJECTED}{kind}": count for kind, count in self._rejected.items()}
        failed = {f"{FAILED}{kind}": count for kind, count in self._failed.items()}
        return {"num_prompt_tokens": self.num_prompt_tokens} | rejected | failed


def audit_counters(audited: Counter[Numerics], diverged: Counter[Numerics]) -> dict[str, int]:
    """Return the audit's totals under the names of PoolStatus."""
    compared = {f"{AUDITED}{numerics}": count for numerics, count in audited.items()}
    differing = {f"{DIVERGED}{numerics}": count for numerics, count in diverged.items()}
    return compared | differing
