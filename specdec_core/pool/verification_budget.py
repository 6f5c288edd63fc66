"""Which drafted tokens a group verifies when not all of them may be.

A target pass costs by the row, and with exact numerics by the tile of rows that one call of a
linear takes. A budget of rows is therefore raised to whole tiles: what a tile has begun to cost is
used. The tokens most likely to be accepted are kept (TETRIS, arXiv 2502.15197, section 4): coupled
sampling makes any such choice lossless.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from specdec_core.pool.grouping import RowPlan
from specdec_core.pool.k_policy import AcceptanceHistory


def whole_tiles(num_rows: int, tile_rows: int) -> int:
    """`num_rows` raised to a multiple of `tile_rows`; as it is where rows cost alike (0)."""
    return -(-num_rows // tile_rows) * tile_rows if tile_rows else num_rows


def keep_within(plans: Sequence[RowPlan], max_rows: int) -> list[RowPlan]:
    """The plans with the least promising drafted tokens left out, so that at most `max_rows`
    choices remain; the one choice that every row needs is never left out."""
    excess = sum(plan.num_choices for plan in plans) - max_rows
    lengths = [len(plan.proposal) for plan in plans]
    weakest = [(_promise(plan, len(plan.proposal)), -index) for index, plan in enumerate(plans)]
    heapq.heapify(weakest)
    while excess > 0 and any(lengths):
        _, negative_index = heapq.heappop(weakest)
        index = -negative_index
        if lengths[index]:
            lengths[index] -= 1
            excess -= 1
            heapq.heappush(weakest, (_promise(plans[index], lengths[index]), -index))
    return [
        plan if length == len(plan.proposal) else _shortened(plan, length)
        for plan, length in zip(plans, lengths, strict=True)
    ]


def _promise(plan: RowPlan, length: int) -> float:
    """The chance that drafted token `length` is accepted, by what became of earlier ones."""
    return acceptance_rate(plan.sequence.history) ** length if length else float("inf")


def acceptance_rate(history: AcceptanceHistory) -> float:
    """Laplace's estimate: a sequence without a past counts as one half."""
    return (history.num_accepted + 1) / (history.num_drafted + 2)


def _shortened(plan: RowPlan, length: int) -> RowPlan:
    return plan._replace(
        num_choices=length + 1, proposal=plan.proposal[:length], num_drafted=length
    )
