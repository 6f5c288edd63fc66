"""The K policy that a configuration names."""

from __future__ import annotations

from specdec_core.config import KPolicyName, PoolConfig
from specdec_core.speculation.goodput import GoodputK
from specdec_core.speculation.k_policy import FixedK, KPolicy, ScheduledK


def make_k_policy(config: PoolConfig) -> KPolicy:
    speculation = config.speculation
    match speculation.k_policy:
        case KPolicyName.GOODPUT:
            return GoodputK(config.max_group_size)
        case KPolicyName.SCHEDULE:
            return ScheduledK(speculation.k_schedule)
    return FixedK(speculation.num_draft_tokens)
