"""Which size a group is checked in to learn what passes of it cost, though another promises more.

What a size costs is learnt only by passes of that size. A look takes what the size is believed to
take beyond the best: the more evidence there is for that, the seldomer it is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.pool.group_choice import Count
from specdec_core.pool.step_costs import StepCost

LOOK_EVERY = 32
"""Groups of which one at most is such a look."""
_PASSES = 300.0
"""Passes without a look at a size, for each that tells what it costs, if a look takes a pass more
than the best does; in proportion if it takes less."""


def most_overdue(found: Sequence[Count], chosen: Count, cost: StepCost, size: int) -> Count:
    """What is to be looked at of a group of `size` sequences, or `chosen`, the best."""

    def overdue(count: Count) -> float:
        loss = chosen.tokens_per_second / count.tokens_per_second - 1.0
        due = _PASSES * cost.evidence(size, count.num_rows) * loss
        return cost.age(size, count.num_rows) / max(due, 1.0)

    most = max(found, key=overdue)
    return most if overdue(most) >= 1.0 else chosen
