"""Which beginnings a target has most likely cached already: feeding them holds nobody up."""

from __future__ import annotations

from collections import OrderedDict

from specdec_core.messages import LeaseRow
from specdec_core.scheduler.sequence import Sequence

_MOST = 4096
"""Blocks that are remembered of a target."""


class PrefixIndex:
    """Of one target, in whole blocks, those that it cached last.

    The replica decides what it finds (docs/decisions/0009-prefix-cache.md). What it has given away
    meanwhile is computed once more, so that a pass takes longer than was thought.
    """

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self._block_size = block_size
        self._most = min(num_blocks, _MOST)
        self._known: OrderedDict[int | tuple[int, str], None] = OrderedDict()
        """Hash of ids up to a block's end, and salt; what is forgotten last comes last."""
        self.version = 1
        """Another one after every change."""

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, sequence: Sequence, base_len: int, end_len: int) -> None:
        """The target has cached these places; of a sequence that has ended, those that it has ids
        for. As there, ends are forgotten before beginnings."""
        ends = self._ends(base_len, min(end_len, len(sequence.prefix_hashes) - 1))
        if not ends:
            return
        self.version += 1
        known = self._known
        for length in reversed(ends):
            key = _key(sequence, length)
            known[key] = None
            known.move_to_end(key)
        while len(known) > self._most:
            known.popitem(last=False)

    def num_found(self, sequence: Sequence, row: LeaseRow) -> int:
        """How many of the row's new ids the target will find cached. A row that scores its prompt
        needs all of it computed."""
        found_len = row.base_len
        if self._known and not row.num_scored:
            for length in self._ends(found_len, row.end_len - min(row.num_choices, 1)):
                if _key(sequence, length) not in self._known:
                    break
                found_len = length
        return found_len - row.base_len

    def _ends(self, base_len: int, end_len: int) -> range:
        size = self._block_size
        return range((base_len // size + 1) * size, end_len + 1, size)


def _key(sequence: Sequence, length: int) -> int | tuple[int, str]:
    prefix_hash, salt = sequence.prefix_hashes[length], sequence.request.cache_salt
    return (prefix_hash, salt) if salt else prefix_hash
