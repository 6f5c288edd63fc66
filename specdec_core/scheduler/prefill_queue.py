"""Rows that catch up: the order in which they go, and how many go at a time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from specdec_core.scheduler.grouping import ScheduledRow

YIELD_S_PER_TOKEN = 0.004
"""Seconds by which a prompt lets others pass for each token that it has yet to catch up. About ten
times what a token takes on two cores: a short prompt passes the long ones of a burst."""
MAX_YIELD_S = 10.0
"""Longest that a prompt of any length lets later and shorter ones pass."""

Turn = tuple[float, int]
"""When it is a sequence's turn, on the clock of its rank, and its number. Lower goes first."""


def turn_of(plan: ScheduledRow) -> Turn:
    """Arrival plus what it yields for the tokens that are left; it nears arrival as it catches up.

    So of prompts that arrived together the one with the fewest tokens left goes first until it has
    its first token, which comes sooner on average than if all took turns (shortest remaining
    processing time). None waits for ever: a row passes another only if it arrived at most
    `MAX_YIELD_S` later.
    """
    sequence = plan.sequence
    rank, sequence_id = sequence.rank
    num_left = max(len(sequence.ids), sequence.resume_len) - plan.row.base_len
    return rank + min(num_left * YIELD_S_PER_TOKEN, MAX_YIELD_S), sequence_id


class PrefillQueue:
    """Plans of the rows that catch up, by turn. A decision looks at the first ones only."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._plans: dict[int, tuple[Turn, ScheduledRow]] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self._plans

    def __iter__(self) -> Iterator[ScheduledRow]:
        """All rows, the first to go first."""
        return (self._plans[sequence_id][1] for _, sequence_id in self._turns)

    def put(self, plan: ScheduledRow) -> None:
        """Add a sequence's plan, which has none here."""
        turn = turn_of(plan)
        insort(self._turns, turn)
        self._plans[turn[1]] = turn, plan

    def discard(self, sequence_id: int) -> None:
        """Take a sequence's plan out, which has one here."""
        turn, _ = self._plans.pop(sequence_id)
        del self._turns[bisect_left(self._turns, turn)]


def within(
    plans: Iterable[ScheduledRow],
    num_out: int,
    most: int | None,
    count_of: Callable[[ScheduledRow], int],
) -> list[ScheduledRow]:
    """The plans that may go, by turns, while so many catch-up tokens are out; at most `most` are.

    A row that only decodes goes always, one that catches up when it is the only one of its kind:
    it may be longer than `most`. Behind one that has to wait no other catches up, so that none is
    overtaken for ever.
    """
    if most is None:
        return list(plans)
    going: list[ScheduledRow] = []
    for plan in plans:
        count = count_of(plan)
        if count and num_out and num_out + count > most:
            most = 0
            continue
        num_out += count
        going.append(plan)
    return going
