"""The K policies by name, and those that learn nothing: a fixed K, and one by a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_core.config import KPolicyName, SchedulerConfig
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import (
    Decision,
    DraftLengthReason,
    KPolicy,
    OfferedRow,
    Terms,
    decision,
)


def make_k_policy(config: SchedulerConfig) -> KPolicy:
    """Return the policy that the configuration names."""
    speculation = config.speculation
    match speculation.k_policy:
        case KPolicyName.GOODPUT:
            return GoodputPolicy(config.max_group_size)
        case KPolicyName.SCHEDULE:
            return SchedulePolicy(speculation.k_schedule)
    return FixedPolicy(speculation.num_draft_tokens)


class _Configured(KPolicy):
    """A policy whose K is configured."""

    def k_of(self, num_live: int) -> int:
        """Return K while `num_live` sequences share a target."""
        raise NotImplementedError

    def terms(self, source: str, num_live: int) -> Terms:
        return Terms(self.k_of(num_live), DraftLengthReason.CONFIGURED)

    def draft_steps(
        self,
        history: AcceptanceHistory,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        local: OfferedRow | None = None,
    ) -> Decision:
        k = 0 if local is not None else min(self.k_of(num_live), limit)
        return decision(k, DraftLengthReason.CONFIGURED)


@dataclass(frozen=True, slots=True)
class FixedPolicy(_Configured):
    """A policy with a constant K."""

    k: int

    def k_of(self, num_live: int) -> int:
        return self.k


@dataclass(frozen=True, slots=True)
class SchedulePolicy(_Configured):
    """K by the number of live sequences, like vLLM's num_speculative_tokens_per_batch_size."""

    schedule: tuple[tuple[int, int, int], ...]
    """Ranges (first, last, K) of live sequences. K is 0 outside all ranges."""

    def k_of(self, num_live: int) -> int:
        ks = (k for first, last, k in self.schedule if first <= num_live <= last)
        return next(ks, 0)
