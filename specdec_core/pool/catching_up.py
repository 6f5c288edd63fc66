"""Which rows may catch up now: every stream of a target waits for a pass that feeds prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specdec_core.pool.grouping import RowPlan


def within(
    plans: Iterable[RowPlan], num_out: int, most: int | None, count_of: Callable[[RowPlan], int]
) -> list[RowPlan]:
    """The plans that may go, by turns, while so many catch-up tokens are out; at most `most` are.

    A row that only decodes goes always, one that catches up when it is the only one of its kind:
    it may be longer than `most`. Behind one that has to wait no other catches up, so that none is
    overtaken for ever.
    """
    if most is None:
        return list(plans)
    going: list[RowPlan] = []
    for plan in plans:
        count = count_of(plan)
        if count and num_out and num_out + count > most:
            most = 0
            continue
        num_out += count
        going.append(plan)
    return going
