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
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import NO_OFFER
from specdec_core.speculation.k_policy import DRAFT_REPLICA, DraftLengthReason, KPolicy, OfferedRow


class VerificationBudget:
    """Shortens the proposals of every group that goes to a target."""

    def __init__(self, config: SchedulerConfig, k_policy: KPolicy) -> None:
        self._max_rows = config.verification_budget
        self._max_choices = config.max_choices
        self._k_policy = k_policy

    def shorten(self, group: list[ScheduledRow], tile_rows: int) -> list[ScheduledRow]:
        """Return the group with its proposals shortened."""
        resuming = [row for row in group if row.is_resuming]
        if resuming:
            return self._shorten_with_resuming(group, resuming, tile_rows)
        has_proposal = any([row.lease_row.proposal for row in group])
        if has_proposal and self._k_policy.is_selective:
            group = keep_worthwhile(group, self._k_policy, tile_rows)
        if has_proposal and self._max_rows is not None:
            group = keep_within(group, whole_tiles(self._max_rows, tile_rows))
        return group

    def _shorten_with_resuming(
        self, group: list[ScheduledRow], resuming: list[ScheduledRow], tile_rows: int
    ) -> list[ScheduledRow]:
        """Return the group, of which the `resuming` rows check tokens that clients brought back.

        The K policy does not judge these tokens. But all choices must fit into the memory that was
        planned for them.
        """
        drafted = self.shorten([row for row in group if not row.is_resuming], tile_rows)
        room = self._max_choices - sum(row.num_choices for row in drafted)
        return sorted(drafted + keep_in_order(resuming, room), key=rank_of)


def keep_worthwhile(
    rows: Sequence[ScheduledRow], k_policy: KPolicy, tile_rows: int
) -> list[ScheduledRow]:
    """Return the rows as the policy wants them. Rows that choose nothing are left as they are."""
    offered = []
    for row in rows:
        if not row.lease_row.num_choices:
            continue
        sequence, offer, source = row.sequence, NO_OFFER, DRAFT_REPLICA
        current = sequence.round
        if row.lease_row.proposal and current is not None:
            offer = current.proposal or current.local or NO_OFFER
            if not current.is_drafted and sequence.drafter is not None:
                source = sequence.drafter.name
        num_left = sequence.max_len - len(sequence.ids)
        offered.append(OfferedRow(sequence.history, source, offer, num_left))
    decisions = iter(k_policy.num_checked(offered, tile_rows))
    return [row.checking(*next(decisions)) if row.lease_row.num_choices else row for row in rows]


def keep_in_order(rows: Sequence[ScheduledRow], room: int) -> list[ScheduledRow]:
    """Return the rows, shortened to `room` choices together.

    Each row keeps one choice. The remaining ones are given out in the order of the rows.
    """
    kept = []
    room -= len(rows)
    for row in rows:
        length = max(0, min(len(row.proposal), room))
        kept.append(row.checking(length, row.reason))
        room -= length
    return kept


def whole_tiles(num_rows: int, tile_rows: int) -> int:
    """Return `num_rows` raised to a multiple of `tile_rows`, unchanged if rows cost alike (0)."""
    return -(-num_rows // tile_rows) * tile_rows if tile_rows else num_rows


def keep_within(rows: Sequence[ScheduledRow], max_rows: int) -> list[ScheduledRow]:
    """Return the rows without the least promising drafted tokens.

    At most `max_rows` choices remain, but the one choice that every row needs is never left out.
    """
    excess = sum(row.num_choices for row in rows) - max_rows
    lengths = [len(row.proposal) for row in rows]
    weakest = [(_promise(row, len(row.proposal)), -index) for index, row in enumerate(rows)]
    heapq.heapify(weakest)
    while excess > 0 and any(lengths):
        _, negative_index = heapq.heappop(weakest)
        index = -negative_index
        if lengths[index]:
            lengths[index] -= 1
            excess -= 1
            heapq.heappush(weakest, (_promise(rows[index], lengths[index]), -index))
    reason = DraftLengthReason.BUDGET
    return [
        row.shortened(length, reason) if length < len(row.proposal) else row
        for row, length in zip(rows, lengths, strict=True)
    ]


def _promise(row: ScheduledRow, length: int) -> float:
    """Return the chance that drafted token `length` is accepted, judged by earlier ones."""
    return acceptance_rate(row.sequence.history) ** length if length else float("inf")


def acceptance_rate(history: AcceptanceHistory) -> float:
    """Return Laplace's estimate, in which a sequence without a past counts as one half."""
    return (history.num_accepted + 1) / (history.num_drafted + 2)
