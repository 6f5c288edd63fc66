"""Index of the prefixes that a target has most likely cached. Feeding them delays no other row."""

from __future__ import annotations

from collections import OrderedDict

from specdec_core.messages import LeaseRow
from specdec_core.scheduler.sequence import Sequence

_MOST = 4096
"""Maximum number of blocks remembered per target."""


class PrefixIndex:
    """The prefixes that one target cached last, in whole blocks.

    The replica decides what it finds (docs/decisions/0009-prefix-cache.md). If it has given blocks
    away meanwhile, it computes them once more, and the pass takes longer than expected.
    """

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self._block_size = block_size
        self._most = min(num_blocks, _MOST)
        self._known: OrderedDict[int | tuple[int, str], None] = OrderedDict()
        """Hash of the IDs up to a block's end, with the salt if any. The last entry is forgotten
        last."""
        self.version = 1
        """Version number, which changes with every update."""

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, sequence: Sequence, base_len: int, end_len: int) -> None:
        """Note that the target has cached the positions from `base_len` to `end_len`.

        A sequence that has ended counts only with positions that it has IDs for. As on the target,
        ends are forgotten before beginnings.
        """
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
        """Return how many of the row's new IDs the target will find cached.

        The number is 0 for a row that scores its prompt, because all of it must be computed.
        """
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
