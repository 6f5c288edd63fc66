"""Ready queue of one replica: rows that could run now, and leased sequences that would join them.

The queue is updated sequence by sequence as things happen. A decision therefore costs as much as
the group that it forms, however many sequences the replica has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from specdec_core.scheduler.grouping import DecodeQueue, ScheduledRow, rank_of
from specdec_core.scheduler.prefill_queue import PrefillQueue, within
from specdec_core.scheduler.prefix_index import PrefixIndex
from specdec_core.scheduler.sequence import Sequence


class ReadyQueue:
    """Plans of the ready rows, of clients and of background sequences."""

    def __init__(
        self,
        max_group_size: int,
        by_shape: bool = True,
        max_prefill_tokens: int | None = None,
        known: PrefixIndex | None = None,
    ) -> None:
        """`max_prefill_tokens`: see PoolConfig. Tokens that `known` finds cached do not count."""
        self.max_group_size = max_group_size
        self._max_prefill = max_prefill_tokens
        self.known = known
        self.clients = DecodeQueue(max_group_size, by_shape)
        """Clients' rows. With a limit of catch-up tokens, only the rows that only decode."""
        self.catching_up = PrefillQueue()
        """Clients' rows that the limit may delay. A delayed row takes no slot from another."""
        self.num_out = 0
        """Catch-up tokens of the replica's open leases. The caller sets it before `choose`."""
        self._background: dict[int, ScheduledRow] = {}
        self._out: dict[int, str] = {}
        """Sequence ID -> its target, for sequences that are leased out and would join a group."""
        self.undrafted: dict[int, Sequence] = {}
        """On a target: clients' sequences that wait for a draft to begin, but could run without."""

    @property
    def num_ready(self) -> int:
        num_clients = len(self.clients.cohort_of) + len(self.catching_up)
        return num_clients + len(self._background)

    @property
    def num_clients(self) -> int:
        """Number of clients' rows that may run now."""
        return len(self.clients.cohort_of) + len(self._let_in)

    @property
    def ready_since(self) -> float:
        """Time since which the oldest client's row that may run now is ready."""
        sinces = [plan.sequence.ready_since for plan in self._let_in]
        if len(self.clients):
            sinces.append(self.clients.ready_since)
        return min(sinces)

    @property
    def has_out(self) -> bool:
        """Whether a sequence is leased out that would join the rows of a target."""
        return bool(self._out)

    @property
    def may_draft_more(self) -> bool:
        """Whether a sequence is out on a target of these rows, so that a draft could wait for it.

        Rows of an idle target cannot wait, nor can a row that only catches up. The check reads all
        rows, so call it only while they are fewer than a group.
        """
        plans = list(self)
        if any(plan.num_choices == 0 for plan in plans):
            return False
        targets = {_target_of(plan) for plan in plans}
        return any(target in targets for target in self._out.values())

    def put(self, plan: ScheduledRow) -> None:
        """Add the ready row of a sequence that is not noted here."""
        if plan.sequence.is_background:
            self._background[plan.sequence.sequence_id] = plan
        elif self._max_prefill is not None and plan.num_catching_up:
            self.catching_up.put(plan)
        else:
            self.clients.put(plan)

    def lend(self, sequence_id: int, target: str) -> None:
        """Note that a row which is ready here is leased out."""
        if sequence_id in self.clients.cohort_of:
            self.clients.discard(sequence_id)
        elif sequence_id in self.catching_up:
            self.catching_up.discard(sequence_id)
        else:
            del self._background[sequence_id]
        self._out[sequence_id] = target

    def put_out(self, sequence_id: int, target: str) -> None:
        """Note that a sequence is leased out and would join a group."""
        self._out[sequence_id] = target

    def put_undrafted(self, sequence: Sequence) -> None:
        """Note a sequence that waits for its draft."""
        self.undrafted[sequence.sequence_id] = sequence

    def forget(self, sequence_id: int) -> None:
        """Remove a sequence that has left or is about to be noted again."""
        self._out.pop(sequence_id, None)
        if self.undrafted:
            self.undrafted.pop(sequence_id, None)
        if sequence_id in self.clients.cohort_of:
            self.clients.discard(sequence_id)
        elif sequence_id in self.catching_up:
            self.catching_up.discard(sequence_id)
        elif self._background:
            self._background.pop(sequence_id, None)

    def num_catching_up(self, plans: list[ScheduledRow]) -> int:
        """Return the catch-up tokens that the replica has yet to compute, where they count."""
        if not (self.catching_up or self._background):
            return 0
        return sum(map(self._num_computed, plans))

    def choose(self, overdue_at: float) -> list[ScheduledRow]:
        """Return the next group, of rows that may run.

        Background rows take the slots that clients leave free. The group is empty only if all ready
        rows have to wait.
        """
        chosen = self.clients.choose(overdue_at)
        let_in = self._let_in
        if let_in:
            chosen = self._oldest(chosen + let_in)
        num_seats = self.max_group_size - len(chosen)
        if not (self._background and num_seats):
            return chosen
        num_out = self.num_out + self.num_catching_up(let_in)
        background = sorted(self._background.values(), key=_age)
        return chosen + self._within(background, num_out)[:num_seats]

    def first(self) -> list[ScheduledRow]:
        """Return the ready row of the sequence that ranks first, if it may run now."""
        return self._within([min(self, key=rank_of)], self.num_out)

    def _oldest(self, plans: list[ScheduledRow]) -> list[ScheduledRow]:
        """Return the oldest plans, at most one group of them."""
        if len(plans) <= self.max_group_size:
            return plans
        return sorted(plans, key=_age)[: self.max_group_size]

    @property
    def _let_in(self) -> list[ScheduledRow]:
        """Clients' rows that may catch up now, in order of their turn."""
        if not self.catching_up:
            return []
        first = islice(self.catching_up, self.max_group_size)
        return self._within(first, self.num_out)

    def _within(self, plans: Iterable[ScheduledRow], num_out: int) -> list[ScheduledRow]:
        return within(plans, num_out, self._max_prefill, self._num_computed)

    def _num_computed(self, plan: ScheduledRow) -> int:
        """Return the catch-up tokens of a row that the replica has yet to compute."""
        count, known = plan.num_catching_up, self.known
        if not count or known is None:
            return count
        if plan.found_at != known.version:
            plan.found_at = known.version
            plan.num_found = known.num_found(plan.sequence, plan.row)
        return max(count - plan.num_found, 0)

    def __iter__(self) -> Iterator[ScheduledRow]:
        yield from self.clients
        yield from self.catching_up
        yield from self._background.values()


def _target_of(plan: ScheduledRow) -> str:
    target = plan.sequence.target
    assert target is not None, "rows are made for sequences that a target has"
    return target.replica_id


def _age(plan: ScheduledRow) -> tuple[float, float, int]:
    return plan.age
