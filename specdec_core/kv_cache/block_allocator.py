"""Tracks the free blocks of a paged cache and the contents of the full ones. Touches no tensor."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from specdec_core.errors import OutOfBlocksError


class BlockKey(NamedTuple):
    """Complete content of a full block. Keys are compared in full, not by hashes of IDs alone."""

    parent: int | str
    """Serial of the block before it, or the root at which a sequence begins."""
    ids: bytes
    """IDs of the block's own tokens."""


class CachedBlock(NamedTuple):
    block: int
    serial: int
    """Number that is never used twice. A child's key therefore always means the same content, even
    after its parent was evicted."""


class BlockAllocator:
    """Hands out block indices 0..num_blocks-1.

    Blocks form runs of `run_length`, and a sequence continues in the run of its last block. A
    sequence begins the lowest run without a block in use. So the touched memory stays dense. Blocks
    that were never needed stay unwritten, and the operating system never has to back them.

    A block may have several holders. When the last holder releases a cached block, the block stays
    findable. It is then idle and counts as free. A run of idle blocks is taken after all other runs
    are begun, in order of release. If no such run is left, blocks are taken from runs in use.
    """

    def __init__(self, num_blocks: int, run_length: int = 1) -> None:
        self.num_blocks = num_blocks
        self._run_length = run_length
        self._num_serials = 0
        self._ref_counts: dict[int, int] = {}
        self._by_key: dict[BlockKey, CachedBlock] = {}
        self._keys: dict[int, BlockKey] = {}
        self._all = [
            (1 << min(run_length, num_blocks - first)) - 1
            for first in range(0, num_blocks, run_length)
        ]
        """For each run, a bit for each of its blocks."""
        self._idle = [0] * len(self._all)
        """For each run, the blocks that have a key and no holder."""
        self._vacant = self._all.copy()
        """For each run, the blocks that have neither a key nor a holder."""
        self._num_begun = 0
        """Number of runs that were ever begun. They are the first ones."""
        self._vacant_runs: list[int] = []
        """Heap of begun runs without a block in use. Each is lower than every run that was never
        begun."""
        self._idle_runs: OrderedDict[int, None] = OrderedDict()
        """Runs without a holder that have idle blocks, in order of release."""
        self._runs_with_vacant: dict[int, None] = {}
        self._runs_with_idle: dict[int, None] = {}
        """Runs in use that have such blocks, in no order."""

    @property
    def num_free(self) -> int:
        return self.num_blocks - len(self._ref_counts)

    @property
    def num_ever_allocated(self) -> int:
        """Number of the first blocks, in whole runs, that were ever allocated."""
        return min(self._num_begun * self._run_length, self.num_blocks)

    def require(self, count: int) -> None:
        """Raise OutOfBlocksError if fewer than `count` blocks are free."""
        if count > self.num_free:
            raise OutOfBlocksError(
                f"{count} KV blocks are needed, {self.num_free} of {self.num_blocks} are free"
            )

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Return `count` free blocks for a sequence whose last block is `after`. Raises
        OutOfBlocksError and then allocates none."""
        self.require(count)
        blocks: list[int] = []
        for _ in range(count):
            after = self._next(after)
            self._ref_counts[after] = 1
            self._flip(after, self._vacant)
            blocks.append(after)
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Remove one holder from each block. Pass a sequence's last blocks first, because a block
        must be evicted before its parent."""
        for block in blocks:
            ref_count = self._ref_counts.pop(block) - 1
            if ref_count:
                self._ref_counts[block] = ref_count
            else:
                self._flip(block, self._idle if block in self._keys else self._vacant)

    def incref(self, block: int) -> None:
        """Add one holder to a block that was found."""
        ref_count = self._ref_counts.get(block, 0)
        self._ref_counts[block] = ref_count + 1
        if not ref_count:
            self._flip(block, self._idle)

    def is_shared(self, block: int) -> bool:
        return self._ref_counts[block] > 1

    def find(self, key: BlockKey) -> CachedBlock | None:
        return self._by_key.get(key)

    def register(self, block: int, key: BlockKey) -> CachedBlock:
        """Make a full block findable. Another block that has the key already replaces it."""
        cached = self._by_key.get(key)
        if cached is None:
            self._num_serials += 1
            self._keys[block] = key
            self._by_key[key] = cached = CachedBlock(block, self._num_serials)
        elif cached.block != block:
            self.incref(cached.block)
            self.free([block])
        return cached

    def evict(self, block: int) -> None:
        """Make the block unfindable. Does nothing for a block without a key."""
        key = self._keys.pop(block, None)
        if key is None:
            return
        del self._by_key[key]
        if block not in self._ref_counts:
            self._flip(block, self._idle, self._vacant)

    def evict_all(self) -> None:
        for block in list(self._keys):
            self.evict(block)

    def _next(self, after: int | None) -> int:
        """Return a free block without a key."""
        if after is not None:
            run, offset = divmod(after, self._run_length)
            further = self._vacant[run] >> offset
            if further:
                return after + _lowest(further)
        run = self._run_to_begin()
        return run * self._run_length + _lowest(self._vacant[run])

    def _run_to_begin(self) -> int:
        """Return a run with a vacant block, if possible one in which nothing else is in use."""
        if self._vacant_runs:
            return heapq.heappop(self._vacant_runs)
        if self._num_begun < len(self._all):
            self._num_begun += 1
            return self._num_begun - 1
        if self._idle_runs:
            self._evict_run(next(iter(self._idle_runs)))
            return self._vacant_runs.pop()
        if not self._runs_with_vacant:
            self._evict_run(next(iter(self._runs_with_idle)))
        return next(iter(self._runs_with_vacant))

    def _evict_run(self, run: int) -> None:
        """Make the idle blocks of a run unfindable."""
        while idle := self._idle[run]:
            self.evict(run * self._run_length + _lowest(idle))

    def _flip(self, block: int, *kinds: list[int]) -> None:
        """Add a block to `_vacant` or `_idle`, or remove it. Its run becomes the last of its
        state."""
        run, offset = divmod(block, self._run_length)
        for bits in kinds:
            bits[run] ^= 1 << offset
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
    """Return the position of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
