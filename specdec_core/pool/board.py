"""What one replica could run now, and which of its sequences are out and would join.

Kept up to date sequence by sequence as things happen, so that a decision costs as much as the group
that it forms, however many sequences live here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from specdec_core.pool.grouping import ReadyRows, RowPlan, rank_of


class Board:
    """Plans of the ready rows, of clients and of background sequences."""

    def __init__(self, max_group_size: int) -> None:
        self._max_group_size = max_group_size
        self.clients = ReadyRows(max_group_size)
        self._background: dict[int, RowPlan] = {}
        self._out: dict[int, str] = {}
        """Sequence -> the target it is on, of those that are leased out and would join a group."""
        self._out_at: Counter[str] = Counter()
        self._ready_at: Counter[str] = Counter()
        self._ready: dict[int, tuple[str, bool]] = {}
        """Sequence -> the target it is on, and whether its row only catches up."""
        self._num_catching_up = 0

    @property
    def num_ready(self) -> int:
        return len(self._ready)

    @property
    def has_out(self) -> bool:
        """Whether a sequence is out that would join the rows of a target."""
        return bool(self._out)

    @property
    def may_draft_more(self) -> bool:
        """Whether a sequence is out on a target of these rows, so that a draft could wait for it.

        Rows of an idle target cannot wait, nor can a row that only catches up.
        """
        if self._num_catching_up:
            return False
        return any(self._out_at[target] for target in self._ready_at)

    def note(self, sequence_id: int, target: str, plan: RowPlan | None, *, is_out: bool) -> None:
        """How a sequence on `target` stands here now, in place of what was noted before."""
        self.forget(sequence_id)
        if is_out:
            self._out[sequence_id] = target
            self._out_at[target] += 1
        if plan is None:
            return
        self._ready[sequence_id] = target, plan.num_choices == 0
        self._ready_at[target] += 1
        self._num_catching_up += plan.num_choices == 0
        if plan.sequence.is_background:
            self._background[sequence_id] = plan
        else:
            self.clients.put(plan)

    def forget(self, sequence_id: int) -> None:
        """The sequence has left, or is about to be noted again."""
        out_at = self._out.pop(sequence_id, None)
        if out_at is not None:
            _take_one(self._out_at, out_at)
        if sequence_id not in self._ready:
            return
        ready_at, is_catching_up = self._ready.pop(sequence_id)
        _take_one(self._ready_at, ready_at)
        self._num_catching_up -= is_catching_up
        if self._background.pop(sequence_id, None) is None:
            self.clients.discard(sequence_id)

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


def _take_one(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


def _age(plan: RowPlan) -> tuple[float, tuple[float, int]]:
    return plan.age
