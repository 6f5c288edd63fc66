"""Selects the drafted tokens that a group verifies: those worth it to the K policy, in a budget.

A target pass costs by the row. With exact numerics it costs by the tile of rows that one call of a
linear takes. A budget of rows is therefore raised to whole tiles, because a tile that has begun is
paid for. The tokens most likely to be accepted are kept (TETRIS, arXiv 2502.15197, section 4).
Coupled sampling makes any such choice lossless.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from specdec_core.config import SchedulerConfig
from specdec_core.scheduler.rows import ScheduledRow, rank_of
from specdec_core.speculation.drafter import NO_OFFER
from specdec_core.speculation.k_policy import (
    DRAFT_REPLICA,
    AcceptanceHistory,
    DraftLengthReason,
    KPolicy,
    OfferedRow,
)


class VerificationBudget:
    """Shortens the proposals of every group that goes to a target."""

    def __init__(self, config: SchedulerConfig, k_policy: KPolicy) -> None:
        self._max_rows = config.verification_budget
        self._max_choices = config.max_choices
        self._k_policy = k_policy

    def shorten(self, group: list[ScheduledRow], tile_rows: int) -> list[ScheduledRow]:
        """Return the group with its proposals shortened.

        Tokens that clients brought back cost as much as a catch-up, so the K policy does not judge
        them. But the choices of all rows must fit into the memory that was planned for them.
        """
        resuming = [plan for plan in group if plan.is_resuming]
        if not resuming:
            return self._shorten_drafted(group, tile_rows)
        drafted = [plan for plan in group if not plan.is_resuming]
        drafted = self._shorten_drafted(drafted, tile_rows)
        room = self._max_choices - sum(plan.num_choices for plan in drafted)
        return sorted(drafted + keep_in_turn(resuming, room), key=rank_of)

    def _shorten_drafted(self, group: list[ScheduledRow], tile_rows: int) -> list[ScheduledRow]:
        if not any([plan.lease_row.proposal for plan in group]):
            return group
        if self._k_policy.is_selective:
            group = keep_worthwhile(group, self._k_policy, tile_rows)
        if self._max_rows is not None:
            group = keep_within(group, whole_tiles(self._max_rows, tile_rows))
        return group


def keep_worthwhile(
    plans: Sequence[ScheduledRow], k_policy: KPolicy, tile_rows: int
) -> list[ScheduledRow]:
    """Return the plans as the policy wants them. Rows that choose nothing are left as they are."""
    offered = [_offered(plan) for plan in plans if plan.num_choices]
    decisions = iter(k_policy.num_checked(offered, tile_rows))
    return [plan.checking(*next(decisions)) if plan.num_choices else plan for plan in plans]


def _offered(plan: ScheduledRow) -> OfferedRow:
    sequence, offer, source = plan.sequence, NO_OFFER, DRAFT_REPLICA
    current, drafter = sequence.round, sequence.drafter
    if plan.lease_row.proposal and current is not None:
        offer = current.proposal or current.local or NO_OFFER
        if not current.is_drafted and drafter is not None:
            source = drafter.name
    return OfferedRow(sequence.history, source, offer, sequence.max_len - len(sequence.ids))


def keep_in_turn(plans: Sequence[ScheduledRow], room: int) -> list[ScheduledRow]:
    """Return the plans, shortened to `room` choices together.

    Each plan keeps one choice. The remaining ones are given out in the order of the plans.
    """
    kept = []
    room -= len(plans)
    for plan in plans:
        length = max(0, min(len(plan.proposal), room))
        kept.append(plan.checking(length, plan.reason))
        room -= length
    return kept


def whole_tiles(num_rows: int, tile_rows: int) -> int:
    """Return `num_rows` raised to a multiple of `tile_rows`, unchanged if rows cost alike (0)."""
    return -(-num_rows // tile_rows) * tile_rows if tile_rows else num_rows


def keep_within(plans: Sequence[ScheduledRow], max_rows: int) -> list[ScheduledRow]:
    """Return the plans without the least promising drafted tokens.

    At most `max_rows` choices remain, but the one choice that every row needs is never left out.
    """
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
    reason = DraftLengthReason.BUDGET
    return [
        plan.shortened(length, reason) if length < len(plan.proposal) else plan
        for plan, length in zip(plans, lengths, strict=True)
    ]


def _promise(plan: ScheduledRow, length: int) -> float:
    """Return the chance that drafted token `length` is accepted, judged by earlier ones."""
    return acceptance_rate(plan.sequence.history) ** length if length else float("inf")


def acceptance_rate(history: AcceptanceHistory) -> float:
    """Return Laplace's estimate, in which a sequence without a past counts as one half."""
    return (history.num_accepted + 1) / (history.num_drafted + 2)
