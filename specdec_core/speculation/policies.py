"""Factory for the K policy that a configuration names."""

from __future__ import annotations

from specdec_core.config import KPolicyName, SchedulerConfig
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import FixedPolicy, KPolicy, SchedulePolicy


def make_k_policy(config: SchedulerConfig) -> KPolicy:
    speculation = config.speculation
    match speculation.k_policy:
        case KPolicyName.GOODPUT:
            return GoodputPolicy(config.max_group_size)
        case KPolicyName.SCHEDULE:
            return SchedulePolicy(speculation.k_schedule)
    return FixedPolicy(speculation.num_draft_tokens)
