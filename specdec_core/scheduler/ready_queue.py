"""Ready queue of one replica: rows that could run now, and leased sequences that would join them.

The queue is updated sequence by sequence as things happen. A decision therefore costs as much as
the group that it forms, however many sequences the replica has. Rows that catch up have a queue of
their own, which limits how many of them run at a time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from specdec_core.scheduler.grouping import DecodeQueue
from specdec_core.scheduler.prefix_index import PrefixIndex
from specdec_core.scheduler.rows import ScheduledRow, rank_of
from specdec_core.scheduler.sequence import Sequence

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
