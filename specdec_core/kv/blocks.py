"""Which blocks of a paged cache are free: a pure bookkeeper that touches no tensor."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from specdec_core.errors import OutOfBlocksError


class BlockAllocator:
    """Hands out block indices 0..num_blocks-1, the lowest free one first.

    Lowest first keeps the touched memory dense: blocks that were never needed stay unwritten, and
    the operating system never has to back them.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._num_fresh_taken = 0
        self._returned: list[int] = []
        """Heap of blocks that came back; each is lower than every fresh one."""

    @property
    def num_free(self) -> int:
        return self.num_blocks - self._num_fresh_taken + len(self._returned)

    def take(self, count: int) -> list[int]:
        """The `count` lowest free blocks; raises OutOfBlocksError and then takes none."""
        if count > self.num_free:
            raise OutOfBlocksError(
                f"{count} KV blocks are needed, {self.num_free} of {self.num_blocks} are free"
            )
        num_reused = min(count, len(self._returned))
        blocks = [heapq.heappop(self._returned) for _ in range(num_reused)]
        num_fresh = count - num_reused
        blocks += range(self._num_fresh_taken, self._num_fresh_taken + num_fresh)
        self._num_fresh_taken += num_fresh
        return blocks

    def give_back(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            heapq.heappush(self._returned, block)
