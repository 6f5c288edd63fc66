"""Ready queue of one replica: rows that could run now, and sequences that would join them.

The queue is updated sequence by sequence as things happen. A decision therefore costs as much as
the batch that it forms, however many sequences the replica has. Rows that catch up have a queue of
their own, which limits how many of them run at a time. Tokens that the target has most likely
cached do not count, because feeding them delays no other row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import Protocol

from specdec_core.messages import TARGET, LeaseRow, Role
from specdec_core.scheduler.rows import ScheduledRow, age_of, rank_of
from specdec_core.scheduler.sequence import Sequence

YIELD_S_PER_TOKEN = 0.004
"""Seconds by which a prompt lets others pass, per token that it has yet to catch up. This is about
ten times what a token takes on two cores, so a short prompt passes the long ones of a burst."""
MAX_YIELD_S = 10.0
"""Maximum seconds by which a prompt of any length lets later and shorter ones pass."""


class RowIndex(Protocol):
    """Another order of the rows of a DecodeQueue, which a grouping policy keeps."""

    def add(self, row: ScheduledRow) -> None:
        """Add the row of a sequence that has none here."""

    def discard(self, sequence_id: int) -> None:
        """Remove the row of a sequence that has one here."""


class Arrival(dict[int, ScheduledRow]):
    """Rows that are ready since the same time, by sequence ID."""

    __slots__ = ("since",)
    since: float


class DecodeQueue:
    """Ready rows by age. A choice reads about one batch of them, although thousands may be ready
    while 32 are wanted.

    The rows of one batch become ready together and are kept together, as arrivals of one time.
    """

    def __init__(self) -> None:
        self._arrivals: dict[float, Arrival] = {}
        """Time since which rows are ready -> these rows, at least one."""
        self.arrivals_of: dict[int, Arrival] = {}
        """Sequence ID -> the arrival that the sequence is part of."""
        self._times: list[float] = []
        """Sorted keys of `_arrivals`."""
        self._unsorted: set[float] = set()
        """Keys of the arrivals whose rows did not come in order of rank."""
        self._index: RowIndex | None = None
        self._not_indexed: dict[int, ScheduledRow] = {}
        """Rows that are not yet in `_index`; empty if there is none."""

    def __len__(self) -> int:
        return len(self.arrivals_of)

    def __iter__(self) -> Iterator[ScheduledRow]:
        return (rows[sequence_id] for sequence_id, rows in self.arrivals_of.items())

    @property
    def ready_since(self) -> float:
        """Time since which the oldest row is ready."""
        return self._times[0]

    def put(self, row: ScheduledRow) -> None:
        """Add the row of a sequence that has none here."""
        sequence = row.sequence
        sequence_id, since = sequence.sequence_id, sequence.ready_since
        rows = self._arrivals.get(since)
        if rows is None:
            rows = self._arrivals[since] = Arrival()
            rows.since = since
            insort(self._times, since)
        elif sequence.rank < next(reversed(rows.values())).sequence.rank:
            self._unsorted.add(since)
        rows[sequence_id] = row
        self.arrivals_of[sequence_id] = rows
        if self._index is not None:
            self._not_indexed[sequence_id] = row

    def discard(self, sequence_id: int) -> None:
        """Remove the row of a sequence that has one here."""
        rows = self.arrivals_of.pop(sequence_id)
        del rows[sequence_id]
        if not rows:
            self._forget(rows.since)
        if self._index is not None and self._not_indexed.pop(sequence_id, None) is None:
            self._index.discard(sequence_id)

    def oldest(self, count: int) -> list[ScheduledRow]:
        """Return the `count` oldest rows, or all rows in no particular order if they are fewer."""
        if len(self.arrivals_of) > count:
            return list(islice(self.by_age(), count))
        return [rows[sequence_id] for sequence_id, rows in self.arrivals_of.items()]

    def by_age(self) -> Iterator[ScheduledRow]:
        """Iterate over all rows, the oldest first. Rows that are not taken cost nothing."""
        for since, rows in self.arrivals():
            if since in self._unsorted:
                self._sort(since)
            yield from rows.values()

    def arrivals(self) -> Iterator[tuple[float, Arrival]]:
        """Iterate over the times since which rows are ready, the earliest first, with the rows."""
        for since in self._times:
            yield since, self._arrivals[since]

    def index(self, make: Callable[[], RowIndex]) -> RowIndex:
        """Return the policy's index of these rows, brought up to date.

        It is made on the first call. Rows are entered only when a choice needs that.
        """
        if self._index is None:
            self._index = make()
            self._not_indexed = {row.sequence.sequence_id: row for row in self}
        for row in self._not_indexed.values():
            self._index.add(row)
        self._not_indexed.clear()
        return self._index

    def _sort(self, since: float) -> None:
        """Sort arrivals by rank, once for many choices. Their rows may be thousands."""
        self._unsorted.discard(since)
        rows = self._arrivals[since]
        by_rank = sorted(rows.values(), key=rank_of)
        rows.clear()
        rows.update((row.sequence.sequence_id, row) for row in by_rank)

    def _forget(self, since: float) -> None:
        """Forget an arrival whose last row has left."""
        del self._arrivals[since], self._times[bisect_left(self._times, since)]
        self._unsorted.discard(since)


PrefillKey = tuple[float, int]
"""(time at which a prompt's turn comes, sequence ID). The lower one goes first."""


def prefill_key(row: ScheduledRow) -> PrefillKey:
    """Return the arrival time plus a delay that shrinks as the sequence catches up.

    Of prompts that arrived together, the one with the least tokens left runs first (shortest
    remaining processing time). A row passes another only if it arrived `MAX_YIELD_S` later at most.
    """
    sequence = row.sequence
    rank, sequence_id = sequence.rank
    num_left = max(len(sequence.ids), sequence.resume_len) - row.lease_row.base_len
    return rank + min(num_left * YIELD_S_PER_TOKEN, MAX_YIELD_S), sequence_id


class ReadyQueue:
    """Ready rows of one replica, of clients and of background sequences.

    A sequence is here at most once: ready, in flight, or waiting for a draft. Each of `enqueue`,
    `mark_in_flight`, `await_draft` and `remove` replaces what was noted of it before.
    """

    def __init__(
        self,
        role: Role,
        max_rows: int,
        max_prefill_tokens: int | None = None,
        prefix_index: PrefixIndex | None = None,
    ) -> None:
        """`max_rows` is the maximum of one batch. `max_prefill_tokens`: see SchedulerConfig.

        Tokens that `prefix_index` finds cached do not count.
        """
        self.role = role
        self.max_rows = max_rows
        self._max_prefill = max_prefill_tokens
        self.prefix_index = prefix_index
        self.decoding = DecodeQueue()
        """Clients' rows. With a limit of prefill tokens, only the rows that only decode."""
        self.prefill: dict[int, tuple[PrefillKey, ScheduledRow]] = {}
        """Clients' rows that the limit may delay. A delayed row takes no slot from another."""
        self._prefill_keys: list[PrefillKey] = []
        """Sorted keys of `prefill`. A decision reads only the first ones."""
        self.background: dict[int, ScheduledRow] = {}
        """Rows that no client waits for."""
        self._in_flight: dict[int, str] = {}
        """Sequence ID -> its target, for sequences that are leased out and would join a batch."""
        self.awaiting_draft: dict[int, Sequence] = {}
        """On a target: clients' sequences that wait for a draft to begin, but could run without."""

    def __iter__(self) -> Iterator[ScheduledRow]:
        yield from self.decoding
        yield from [row for _, row in self.prefill.values()]
        yield from self.background.values()

    def __contains__(self, sequence_id: int) -> bool:
        """Return whether the sequence has a ready row."""
        queues = self.decoding.arrivals_of, self.prefill, self.background
        return any(sequence_id in rows for rows in queues)

    @property
    def num_ready(self) -> int:
        return len(self.decoding.arrivals_of) + len(self.prefill) + len(self.background)

    @property
    def may_gain_rows(self) -> bool:
        """Whether a sequence in flight would join the ready rows when it comes back.

        A draft waits only for sequences of the targets that its rows belong to.
        """
        return bool(self._in_flight) and (self.role is TARGET or self._has_rows_of_busy_targets())

    def enqueue(self, row: ScheduledRow) -> None:
        """Note that a sequence is ready to run this row."""
        sequence_id = row.sequence.sequence_id
        if self._in_flight.pop(sequence_id, None) is None:  # it is nearly always in flight
            self.remove(sequence_id)
        if row.sequence.is_background:
            self.background[sequence_id] = row
        elif self._max_prefill is not None and row.num_catching_up:
            key = prefill_key(row)
            insort(self._prefill_keys, key)
            self.prefill[sequence_id] = key, row
        else:
            self.decoding.put(row)

    def mark_in_flight(self, sequence_id: int, target: str) -> None:
        """Note that a sequence of this target is leased out and would join a batch afterwards."""
        if sequence_id in self.decoding.arrivals_of:  # as in `remove`, without a call per row
            self.decoding.discard(sequence_id)
        else:
            self.remove(sequence_id)
        self._in_flight[sequence_id] = target

    def await_draft(self, sequence: Sequence) -> None:
        """Note that a sequence of this target waits for its draft. Only clients' ones are kept."""
        self.remove(sequence.sequence_id)
        if not sequence.is_background:
            self.awaiting_draft[sequence.sequence_id] = sequence

    def remove(self, sequence_id: int) -> None:
        """Remove a sequence. Nothing happens if it is not here."""
        self._in_flight.pop(sequence_id, None)
        self.awaiting_draft.pop(sequence_id, None)
        if sequence_id in self.decoding.arrivals_of:
            self.decoding.discard(sequence_id)
        elif sequence_id in self.prefill:
            key, _ = self.prefill.pop(sequence_id)
            del self._prefill_keys[bisect_left(self._prefill_keys, key)]
        elif self.background:
            self.background.pop(sequence_id, None)

    def prefill_rows(self, num_in_flight: int) -> list[ScheduledRow]:
        """Return the clients' rows that may catch up now, in order, at most one batch of them.

        `num_in_flight` is the number of prefill tokens of the replica's open leases.
        """
        if not self.prefill:
            return []
        first = self._prefill_keys[: self.max_rows]
        rows = [self.prefill[sequence_id][1] for _, sequence_id in first]
        return self._within_limit(rows, num_in_flight)

    def background_rows(
        self, num_in_flight: int, prefill: list[ScheduledRow]
    ) -> list[ScheduledRow]:
        """Return the background rows that may run besides these prefill rows, the oldest first."""
        num_in_flight += self.num_prefill_tokens(prefill)
        return self._within_limit(sorted(self.background.values(), key=age_of), num_in_flight)

    def first(self, num_in_flight: int) -> list[ScheduledRow]:
        """Return the ready row of the sequence that ranks first, if it may run now."""
        return self._within_limit([min(self, key=rank_of)], num_in_flight)

    def num_prefill_tokens(self, rows: list[ScheduledRow]) -> int:
        """Return the prefill tokens that the replica has yet to compute, where they count."""
        if not (self.prefill or self.background):
            return 0
        return sum(map(self._num_computed, rows))

    def _has_rows_of_busy_targets(self) -> bool:
        """Return whether rows of a draft wait for their target's others.

        Rows of an idle target cannot wait, nor can a row that only catches up. The check reads all
        rows of a draft, so use it only while they are fewer than a batch.
        """
        rows = list(self)
        if any(row.num_choices == 0 for row in rows):
            return False
        reservations = [row.sequence.target for row in rows]
        targets = {one.replica_id for one in reservations if one is not None}
        return not targets.isdisjoint(self._in_flight.values())

    def _within_limit(self, rows: Iterable[ScheduledRow], num_in_flight: int) -> list[ScheduledRow]:
        """Return the rows that may run, in order, while `num_in_flight` tokens are leased out.

        A row that is longer than the limit runs if no other row catches up. After a row that has to
        wait no other row catches up, so that none is overtaken for ever.
        """
        limit = inf if self._max_prefill is None else self._max_prefill
        running: list[ScheduledRow] = []
        for row in rows:
            count = self._num_computed(row)
            if count and num_in_flight and num_in_flight + count > limit:
                limit = 0
                continue
            num_in_flight += count
            running.append(row)
        return running

    def _num_computed(self, row: ScheduledRow) -> int:
        """Return the prefill tokens of a row that the replica has yet to compute."""
        count, index = row.num_catching_up, self.prefix_index
        if not count or index is None:
            return count
        if row.matched_at_version != index.version:
            row.matched_at_version = index.version
            row.num_matched = index.num_matched(row.sequence, row.lease_row)
        return max(count - row.num_matched, 0)


_MAX_BLOCKS = 4096
"""Maximum number of blocks remembered per target."""
_BlockKey = int | tuple[int, str]
"""Hash of the IDs up to a block's end, with the salt if any."""


class PrefixIndex:
    """The prefixes that one target cached last, in whole blocks.

    The replica decides what it finds (docs/decisions/0009-prefix-cache.md). If it has given blocks
    away meanwhile, it computes them once more, and the pass takes longer than expected.
    """

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self._block_size = block_size
        self._most = min(num_blocks, _MAX_BLOCKS)
        self._blocks: OrderedDict[_BlockKey, None] = OrderedDict()
        """The last entry is forgotten last."""
        self.version = 1
        """Version number, which changes with every update."""

    def __len__(self) -> int:
        return len(self._blocks)

    def learn(self, sequence: Sequence, base_len: int, end_len: int) -> None:
        """Note that the target has cached the positions from `base_len` to `end_len`.

        As on the target, ends of a sequence are forgotten before beginnings.
        """
        end_len = min(end_len, len(sequence.prefix_hashes) - 1)
        if end_len // self._block_size <= base_len // self._block_size:
            return  # as most rounds do
        self.version += 1
        blocks = self._blocks
        for key in reversed(self._keys(sequence, base_len, end_len)):
            blocks[key] = None
            blocks.move_to_end(key)
        while len(blocks) > self._most:
            blocks.popitem(last=False)

    def num_matched(self, sequence: Sequence, row: LeaseRow) -> int:
        """Return how many of the row's new IDs the target will find cached; 0 if it scores them."""
        matched_len, size = row.base_len, self._block_size
        if self._blocks and not row.num_scored:
            for key in self._keys(sequence, matched_len, row.end_len - min(row.num_choices, 1)):
                if key not in self._blocks:
                    break
                matched_len = (matched_len // size + 1) * size
        return matched_len - row.base_len

    def _keys(self, sequence: Sequence, base_len: int, end_len: int) -> list[_BlockKey]:
        """Return the keys of the blocks that end after `base_len`, up to `end_len`."""
        size, hashes, salt = self._block_size, sequence.prefix_hashes, sequence.request.cache_salt
        ends = range((base_len // size + 1) * size, end_len + 1, size)
        return [(hashes[end], salt) if salt else hashes[end] for end in ends]
