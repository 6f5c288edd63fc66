"""Prompt lookup: proposals copied from what followed an earlier occurrence of the last tokens.

One index per sequence, in arrays as those of an LZ77 coder: a table of hashes says where the last
lookup_min-gram of each hash ends, and every such place is linked to the one before it. A committed
token costs one write, a proposal walks a bounded chain, and a token takes 8 to 17 bytes, where a
dictionary takes 120. No torch: the pool makes these proposals itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache

from specdec_core.config import NgramConfig

_NONE = 0
"""Instead of the length of a prefix."""
_ID_BITS = 14
"""What an id moves the key by. Keys of two ids are small integers then; greater ids overlap, which
a hash may do."""
_LEAST_SLOTS = 3**6
"""Of a table. No power of two, by which the remainder of a key would be that of its last id."""
_GROWTH = 3

_MAX_CHAIN = 32
"""Most earlier occurrences that one proposal compares: it bounds the cost on repetitive text."""
_MAX_STEPS = 4 * _MAX_CHAIN
"""The same with those that have the hash alone in common: about one for each occurrence at most."""


class NgramIndex:
    """Earlier occurrences of every suffix of a growing list of ids, which the caller owns."""

    __slots__ = (
        "_begin",
        "_ids",
        "_key",
        "_key_mask",
        "_links",
        "_max",
        "_min",
        "_older",
        "_table",
        "num_agreed",
    )

    def __init__(self, ids: Sequence[int], config: NgramConfig) -> None:
        self._ids = ids
        self._min = config.lookup_min
        self._max = config.lookup_max
        self._key = 0
        """Of the last lookup_min ids."""
        self._key_mask = _key_mask(self._min)
        self._links = array("i")
        """Index i: of the prefix of i + 1 ids, the length of the prefix before it in its slot."""
        self._table = array("i")
        """Hash of a lookup_min-gram -> length of the latest prefix that ends with it."""
        self._begin = 0
        """Ids before those that are in the table."""
        self._older: tuple[array[int], ...] = ()
        """Full tables, which stay as they are: no token waits for a move of all."""
        self.num_agreed = 0
        """Ids that equal those before what was proposed last, at most lookup_max."""

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """What followed the most recent occurrence of the longest known suffix; () if none is.

        A copy that reaches the end of the ids goes on in itself, so a loop is continued.
        """
        links = self._links
        if len(links) < len(self._ids):
            self._catch_up()
        if not links or (links[-1] == _NONE and not self._older):
            return ()  # so nearly always where texts do not repeat themselves
        start = self._find_continuation()
        if start == _NONE:
            return ()
        copied = list(self._ids[start : start + num_tokens])
        while len(copied) < num_tokens:  # its end is that of the ids: it goes on in itself
            copied += copied[: num_tokens - len(copied)]
        return tuple(copied)

    def _catch_up(self) -> None:
        ids, links = self._ids, self._links
        if len(ids) > self._begin + len(self._table):
            self._begin_table()
        key, mask, table = self._key, self._key_mask, self._table
        num_slots = len(table)
        for place in range(len(links), len(ids)):
            key = (key << _ID_BITS ^ ids[place]) & mask
            slot = key % num_slots
            links.append(table[slot])
            table[slot] = place + 1
        self._key = key

    def _begin_table(self) -> None:
        if self._table:
            self._older += (self._table,)
        self._begin = len(self._links)
        num_slots = max(len(self._table) * _GROWTH, _LEAST_SLOTS)
        while num_slots < len(self._ids) - self._begin:
            num_slots *= _GROWTH
        self._table = array("i", [_NONE]) * num_slots

    def _find_continuation(self) -> int:
        """Length of the prefix whose end is most like that of the ids, the latest of such."""
        ids, links = self._ids, self._links
        end, num_older = links[-1], len(self._older)
        best_len, best, num_seen = self._min - 1, _NONE, 0
        for _ in range(_MAX_STEPS):
            while end == _NONE and num_older > 0:
                num_older -= 1
                table = self._older[num_older]
                end = table[self._key % len(table)]
            if end == _NONE or best_len == self._max or num_seen == _MAX_CHAIN:
                break
            if ids[end - 1] == ids[-1]:  # else the hash alone is equal
                match_len = self._match_len(end)
                num_seen += match_len >= self._min
                if match_len > best_len:
                    best_len, best = match_len, end
            end = links[end - 1]
        self.num_agreed = best_len
        return best

    def _match_len(self, end: int) -> int:
        """How many ids before `end` equal the last ones, up to lookup_max."""
        ids, length, longest = self._ids, 0, min(self._max, end)
        while length < longest and ids[end - length - 1] == ids[-length - 1]:
            length += 1
        return length


@cache
def _key_mask(num_ids: int) -> int:
    """One object for all indexes alike: each that a sequence has of its own is a cache miss."""
    return (1 << _ID_BITS * num_ids) - 1
