"""What one replica could run now, and which of its sequences are out and would join.

Kept up to date sequence by sequence as things happen, so that a decision costs as much as the group
that it forms, however many sequences live here.
"""

from __future__ import annotations

from collections.abc import Iterator

from specdec_core.pool.grouping import ReadyRows, RowPlan, rank_of
from specdec_core.pool.sequence import Sequence


class Board:
    """Plans of the ready rows, of clients and of background sequences."""

    def __init__(self, max_group_size: int, by_shape: bool = True) -> None:
        self._max_group_size = max_group_size
        self.clients = ReadyRows(max_group_size, by_shape)
        self._background: dict[int, RowPlan] = {}
        self._out: dict[int, str] = {}
        """Sequence -> the target it is on, of those that are leased out and would join a group."""
        self.undrafted: dict[int, Sequence] = {}
        """On a target: clients' sequences that wait for their draft to begin, and need not."""

    @property
    def num_ready(self) -> int:
        return len(self.clients.cohort_of) + len(self._background)

    @property
    def has_out(self) -> bool:
        """Whether a sequence is out that would join the rows of a target."""
        return bool(self._out)

    @property
    def may_draft_more(self) -> bool:
        """Whether a sequence is out on a target of these rows, so that a draft could wait for it.

        Rows of an idle target cannot wait, nor can a row that only catches up. All rows are looked
        at: ask while they are fewer than a group.
        """
        plans = list(self)
        if any(plan.num_choices == 0 for plan in plans):
            return False
        targets = {_target_of(plan) for plan in plans}
        return any(target in targets for target in self._out.values())

    def put(self, plan: RowPlan) -> None:
        """The sequence, which is not noted here, has this row ready."""
        if plan.sequence.is_background:
            self._background[plan.sequence.sequence_id] = plan
        else:
            self.clients.put(plan)

    def lend(self, sequence_id: int, target: str) -> None:
        """The row, which is ready here, is leased out; only this board knows the sequence."""
        if sequence_id in self.clients.cohort_of:
            self.clients.discard(sequence_id)
        else:
            del self._background[sequence_id]
        self._out[sequence_id] = target

    def put_out(self, sequence_id: int, target: str) -> None:
        """The sequence, which is not noted as out, is leased out and would join a group."""
        self._out[sequence_id] = target

    def put_undrafted(self, sequence: Sequence) -> None:
        """The sequence, which is not noted here, waits for its draft."""
        self.undrafted[sequence.sequence_id] = sequence

    def forget(self, sequence_id: int) -> None:
        """The sequence has left, or is about to be noted again."""
        self._out.pop(sequence_id, None)
        if self.undrafted:
            self.undrafted.pop(sequence_id, None)
        if sequence_id in self.clients.cohort_of:
            self.clients.discard(sequence_id)
        elif self._background:
            self._background.pop(sequence_id, None)

    def choose(self, overdue_at: float) -> list[RowPlan]:
        """The next group; background rows take the seats that clients leave."""
        chosen = self.clients.choose(overdue_at)
        num_seats = self._max_group_size - len(chosen)
        if not (self._background and num_seats):
            return chosen
        background = sorted(self._background.values(), key=_age)
        return chosen + background[:num_seats]

    def first(self) -> RowPlan:
        """The ready row of the sequence that ranks first."""
        return min(self, key=rank_of)

    def __iter__(self) -> Iterator[RowPlan]:
        yield from self.clients
        yield from self._background.values()


def _target_of(plan: RowPlan) -> str:
    target = plan.sequence.target
    assert target is not None, "rows are made for sequences that a target has"
    return target.replica_id


def _age(plan: RowPlan) -> tuple[float, float, int]:
    return plan.age
