"""Prompt lookup: proposals copied from what followed an earlier occurrence of the last tokens.

One index per sequence. Every occurrence of a `lookup_min`-gram is chained to the one before it, so
that a committed token costs one dictionary write, and a proposal walks a bounded chain. No torch:
the pool makes these proposals itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from specdec_core.config import NgramConfig

_NO_POSITION = -1
_ID_BITS = 32

_MAX_CHAIN = 32
"""Most earlier occurrences that one proposal compares: it bounds the cost on repetitive text."""


class NgramIndex:
    """Earlier occurrences of every suffix of a growing list of ids, which the caller owns."""

    __slots__ = ("_ids", "_key", "_key_mask", "_latest", "_max", "_min", "_previous")

    def __init__(self, ids: Sequence[int], config: NgramConfig) -> None:
        self._ids = ids
        self._min = config.lookup_min
        self._max = config.lookup_max
        self._key = 0
        self._key_mask = (1 << _ID_BITS * self._min) - 1
        self._latest: dict[int, int] = {}
        """lookup_min-gram -> length of the prefix that it ends, for its latest occurrence."""
        self._previous = array("q")
        """Index i: the same for the occurrence before the one that ends a prefix of i + 1 ids."""

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """What followed the most recent occurrence of the longest known suffix; () if none is.

        A copy that reaches the end of the ids goes on in itself, so a loop is continued.
        """
        self._catch_up()
        if not self._previous or self._previous[-1] == _NO_POSITION:
            return ()
        start = self._find_continuation()
        copied = list(self._ids[start : start + num_tokens])
        while len(copied) < num_tokens:  # its end is that of the ids: it goes on in itself
            copied += copied[: num_tokens - len(copied)]
        return tuple(copied)

    def _catch_up(self) -> None:
        key, mask, latest, previous = self._key, self._key_mask, self._latest, self._previous
        length = len(previous)
        for token_id in self._ids[length:]:
            length += 1
            key = (key << _ID_BITS | token_id) & mask
            if length < self._min:
                previous.append(_NO_POSITION)
            else:
                previous.append(latest.get(key, _NO_POSITION))
                latest[key] = length
        self._key = key

    def _find_continuation(self) -> int:
        best_len, best = 0, _NO_POSITION
        end = self._previous[-1]
        for _ in range(_MAX_CHAIN):
            if end == _NO_POSITION or best_len == self._max:
                break
            match_len = self._match_len(end)
            if match_len > best_len:
                best_len, best = match_len, end
            end = self._previous[end - 1]
        return best

    def _match_len(self, end: int) -> int:
        """How many ids before `end` equal the last ones, up to lookup_max."""
        ids, length, longest = self._ids, self._min, min(self._max, end)
        while length < longest and ids[end - length - 1] == ids[-length - 1]:
            length += 1
        return length
