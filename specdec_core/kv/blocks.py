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
    """Hands out block indices 0..num_blocks-1, the lowest free one first.

    Lowest first keeps the touched memory dense: blocks that were never needed stay unwritten, and
    the operating system never has to back them. A block may have several holders. One that has a
    name stays findable when the last lets go: it counts as free and is taken after all others, the
    one that was let go first before those let go later.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_ever_taken = 0
        """So many of the first blocks; the others never were."""
        self._num_serials = 0
        self._returned: list[int] = []
        """Heap of blocks that came back; each is lower than every fresh one."""
        self._num_holders: dict[int, int] = {}
        self._found: dict[BlockName, NamedBlock] = {}
        self._names: dict[int, BlockName] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Named blocks without a holder, in the order in which they were let go."""

    @property
    def num_free(self) -> int:
        return self.num_blocks - len(self._num_holders)

    def take(self, count: int) -> list[int]:
        """The `count` lowest free blocks; raises OutOfBlocksError and then takes none."""
        if count > self.num_free:
            raise OutOfBlocksError(
                f"{count} KV blocks are needed, {self.num_free} of {self.num_blocks} are free"
            )
        num_reused = min(count, len(self._returned))
        blocks = [heapq.heappop(self._returned) for _ in range(num_reused)]
        num_fresh = min(count - num_reused, self.num_blocks - self.num_ever_taken)
        blocks += range(self.num_ever_taken, self.num_ever_taken + num_fresh)
        self.num_ever_taken += num_fresh
        blocks += [self._evict() for _ in range(count - len(blocks))]
        self._num_holders.update(dict.fromkeys(blocks, 1))
        return blocks

    def give_back(self, blocks: Iterable[int]) -> None:
        """One holder fewer of each. Give a sequence's last blocks first: what nobody can find once
        its parent is gone is then taken before that."""
        for block in blocks:
            num_holders = self._num_holders.pop(block) - 1
            if num_holders:
                self._num_holders[block] = num_holders
            elif block in self._names:
                self._idle[block] = None
            else:
                heapq.heappush(self._returned, block)

    def hold(self, block: int) -> None:
        """One holder more of a block that was found."""
        self._idle.pop(block, None)
        self._num_holders[block] = self._num_holders.get(block, 0) + 1

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
        if block in self._idle:
            del self._idle[block]
            heapq.heappush(self._returned, block)

    def unname_all(self) -> None:
        for block in list(self._names):
            self.unname(block)

    def _evict(self) -> int:
        """The block that has been idle longest, without its name."""
        block, _ = self._idle.popitem(last=False)
        self.unname(block)
        return block
