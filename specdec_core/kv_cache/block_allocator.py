"""Which blocks of a paged cache are free, and what the full ones hold: touches no tensor."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from specdec_core.errors import OutOfBlocksError


class BlockName(NamedTuple):
    """What a full block holds, in full: names are compared, never hashes of ids alone."""

    parent: int | str
    """Serial of the block before it, or the root that a sequence begins at."""
    ids: bytes
    """Of the block's own tokens."""


class NamedBlock(NamedTuple):
    block: int
    serial: int
    """Not used twice: a child's name means one content for good, whatever became of its parent."""


class BlockAllocator:
    """Hands out block indices 0..num_blocks-1.

    Blocks lie in runs of `run_length`, and a sequence goes on where its last block lies. It begins
    the lowest run of which nothing is in use: so the touched memory stays dense, and blocks that
    were never needed stay unwritten, which the operating system never has to back. A block may have
    several holders. One that has a name stays findable when the last lets go: it is idle, and
    counts as free. A run of idle blocks is taken once all others are begun, the one that was let go
    first before those let go later; what is left of runs in use, once there is no other.
    """

    def __init__(self, num_blocks: int, run_length: int = 1) -> None:
        self.num_blocks = num_blocks
        self._run_length = run_length
        self._num_serials = 0
        self._num_holders: dict[int, int] = {}
        self._found: dict[BlockName, NamedBlock] = {}
        self._names: dict[int, BlockName] = {}
        self._all = [
            (1 << min(run_length, num_blocks - first)) - 1
            for first in range(0, num_blocks, run_length)
        ]
        """For each run a bit for each of its blocks."""
        self._idle = [0] * len(self._all)
        """Of them those that have a name and no holder."""
        self._vacant = self._all.copy()
        """Those that have neither."""
        self._num_begun = 0
        """Runs that were ever begun: so many of the first ones."""
        self._vacant_runs: list[int] = []
        """Heap of begun runs of which nothing is in use; each is lower than every fresh one."""
        self._idle_runs: OrderedDict[int, None] = OrderedDict()
        """Runs without a holder that have idle blocks, in the order in which they were let go."""
        self._runs_with_vacant: dict[int, None] = {}
        self._runs_with_idle: dict[int, None] = {}
        """Runs in use that have such blocks, in no order."""

    @property
    def num_free(self) -> int:
        return self.num_blocks - len(self._num_holders)

    @property
    def num_ever_taken(self) -> int:
        """So many of the first blocks, by whole runs; the others never were."""
        return min(self._num_begun * self._run_length, self.num_blocks)

    def require(self, count: int) -> None:
        """Raises OutOfBlocksError where fewer are free."""
        if count > self.num_free:
            raise OutOfBlocksError(
                f"{count} KV blocks are needed, {self.num_free} of {self.num_blocks} are free"
            )

    def take(self, count: int, behind: int | None = None) -> list[int]:
        """`count` free blocks for a sequence whose last one is `behind`; raises OutOfBlocksError
        and then takes none."""
        self.require(count)
        blocks: list[int] = []
        for _ in range(count):
            behind = self._next(behind)
            self._num_holders[behind] = 1
            self._flip(behind, self._vacant)
            blocks.append(behind)
        return blocks

    def give_back(self, blocks: Iterable[int]) -> None:
        """One holder fewer of each. Give a sequence's last blocks first: what nobody can find once
        its parent is gone is then taken before that."""
        for block in blocks:
            num_holders = self._num_holders.pop(block) - 1
            if num_holders:
                self._num_holders[block] = num_holders
            else:
                self._flip(block, self._idle if block in self._names else self._vacant)

    def hold(self, block: int) -> None:
        """One holder more of a block that was found."""
        num_holders = self._num_holders.get(block, 0)
        self._num_holders[block] = num_holders + 1
        if not num_holders:
            self._flip(block, self._idle)

    def is_shared(self, block: int) -> bool:
        return self._num_holders[block] > 1

    def find(self, name: BlockName) -> NamedBlock | None:
        return self._found.get(name)

    def name(self, block: int, name: BlockName) -> NamedBlock:
        """Make a full block findable. Where another one has the name, that takes its place."""
        found = self._found.get(name)
        if found is None:
            self._num_serials += 1
            self._names[block] = name
            self._found[name] = found = NamedBlock(block, self._num_serials)
        elif found.block != block:
            self.hold(found.block)
            self.give_back([block])
        return found

    def unname(self, block: int) -> None:
        """Nobody finds the block any more; a no-op for one without a name."""
        name = self._names.pop(block, None)
        if name is None:
            return
        del self._found[name]
        if block not in self._num_holders:
            self._flip(block, self._idle, self._vacant)

    def unname_all(self) -> None:
        for block in list(self._names):
            self.unname(block)

    def _next(self, behind: int | None) -> int:
        """A free block, without a name."""
        if behind is not None:
            run, place = divmod(behind, self._run_length)
            further = self._vacant[run] >> place
            if further:
                return behind + _lowest(further)
        run = self._run_to_begin()
        return run * self._run_length + _lowest(self._vacant[run])

    def _run_to_begin(self) -> int:
        """One with a vacant block, and with no others if there is such a one."""
        if self._vacant_runs:
            return heapq.heappop(self._vacant_runs)
        if self._num_begun < len(self._all):
            self._num_begun += 1
            return self._num_begun - 1
        if self._idle_runs:
            self._evict(next(iter(self._idle_runs)))
            return self._vacant_runs.pop()
        if not self._runs_with_vacant:
            self._evict(next(iter(self._runs_with_idle)))
        return next(iter(self._runs_with_vacant))

    def _evict(self, run: int) -> None:
        """Take the names of a run's idle blocks."""
        while idle := self._idle[run]:
            self.unname(run * self._run_length + _lowest(idle))

    def _flip(self, block: int, *kinds: list[int]) -> None:
        """Put a block into each of `_vacant` or `_idle`, or take it out; its run goes behind the
        others that are now like it."""
        run, place = divmod(block, self._run_length)
        for bits in kinds:
            bits[run] ^= 1 << place
        self._sort(run)

    def _sort(self, run: int) -> None:
        vacant, idle = self._vacant[run], self._idle[run]
        for runs in (self._idle_runs, self._runs_with_vacant, self._runs_with_idle):
            runs.pop(run, None)
        if vacant == self._all[run]:
            heapq.heappush(self._vacant_runs, run)
        elif vacant | idle == self._all[run]:
            self._idle_runs[run] = None
        else:
            if vacant:
                self._runs_with_vacant[run] = None
            if idle:
                self._runs_with_idle[run] = None


def _lowest(bits: int) -> int:
    """Place of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
