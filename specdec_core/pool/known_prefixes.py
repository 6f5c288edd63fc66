"""Which beginnings a target has most likely cached already: feeding them holds nobody up."""

from __future__ import annotations

from bisect import bisect_left

from specdec_core.leases import LeaseRow, extend_hash
from specdec_core.pool.sequence import Sequence

_MOST = 4096
"""Blocks that are remembered of a target."""


class KnownPrefixes:
    """Of one target, in whole blocks, those that it was fed last.

    The replica decides what it finds (docs/decisions/0009-prefix-cache.md). What it has given away
    meanwhile is computed once more, so that a pass takes longer than was thought.
    """

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self._block_size = block_size
        self._most = min(num_blocks, _MOST)
        self._known: dict[int, None] = {}
        """Hash of ids and salt up to a block's end; the latest one last."""

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, sequence: Sequence, row: LeaseRow) -> None:
        """The target has run the row."""
        for length in self._ends(row.base_len, row.end_len):
            key = _key(sequence, length)
            self._known.pop(key, None)
            self._known[key] = None
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def num_found(self, sequence: Sequence, row: LeaseRow) -> int:
        """How many of the row's new ids the target will find cached. A row that scores its prompt
        needs all of it computed."""
        if row.num_scored or not self._known:
            return 0
        ends = self._ends(row.base_len, row.end_len - min(row.num_choices, 1))
        if not ends or _key(sequence, ends[0]) not in self._known:
            return 0
        # Whoever was fed up to one end was fed up to those before it.
        num_known = bisect_left(
            ends, True, key=lambda length: _key(sequence, length) not in self._known
        )
        return ends[num_known - 1] - row.base_len

    def _ends(self, base_len: int, end_len: int) -> range:
        size = self._block_size
        return range((base_len // size + 1) * size, end_len + 1, size)


def _key(sequence: Sequence, length: int) -> int:
    prefix_hash, salt = sequence.prefix_hashes[length], sequence.request.cache_salt
    return extend_hash(prefix_hash, salt.encode()) if salt else prefix_hash
