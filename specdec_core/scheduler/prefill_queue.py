"""Queue of the rows that catch up: the order in which they run, and how many run at a time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from specdec_core.scheduler.grouping import ScheduledRow

YIELD_S_PER_TOKEN = 0.004
"""Seconds by which a prompt lets others pass, per token that it has yet to catch up. This is about
ten times what a token takes on two cores, so a short prompt passes the long ones of a burst."""
MAX_YIELD_S = 10.0
"""Maximum seconds by which a prompt of any length lets later and shorter ones pass."""

Turn = tuple[float, int]
"""(time of a sequence's turn on the clock of its rank, sequence ID). The lower one goes first."""


def turn_of(plan: ScheduledRow) -> Turn:
    """Return the arrival time plus a delay for the tokens that are left.

    The delay shrinks as the sequence catches up. Of prompts that arrived together, the one with the
    least tokens left therefore runs first until it has its first token. On average that token comes
    sooner than if all took turns (shortest remaining processing time). No row waits for ever: a row
    passes another only if it arrived at most `MAX_YIELD_S` later.
    """
    sequence = plan.sequence
    rank, sequence_id = sequence.rank
    num_left = max(len(sequence.ids), sequence.resume_len) - plan.row.base_len
    return rank + min(num_left * YIELD_S_PER_TOKEN, MAX_YIELD_S), sequence_id


class PrefillQueue:
    """Plans of the rows that catch up, by turn. A decision reads only the first ones."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._plans: dict[int, tuple[Turn, ScheduledRow]] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self._plans

    def __iter__(self) -> Iterator[ScheduledRow]:
        """Iterate over all rows in order of their turn."""
        return (self._plans[sequence_id][1] for _, sequence_id in self._turns)

    def put(self, plan: ScheduledRow) -> None:
        """Add the plan of a sequence that has none here."""
        turn = turn_of(plan)
        insort(self._turns, turn)
        self._plans[turn[1]] = turn, plan

    def discard(self, sequence_id: int) -> None:
        """Remove the plan of a sequence that has one here."""
        turn, _ = self._plans.pop(sequence_id)
        del self._turns[bisect_left(self._turns, turn)]


def within(
    plans: Iterable[ScheduledRow],
    num_out: int,
    most: int | None,
    count_of: Callable[[ScheduledRow], int],
) -> list[ScheduledRow]:
    """Return the plans that may run, in order, while `num_out` catch-up tokens are leased out.

    At most `most` catch-up tokens may be out. A row that only decodes always runs. A row that
    catches up also runs if it is the only one of its kind, even if it is longer than `most`. After
    a row that has to wait no other row catches up, so that none is overtaken for ever.
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
