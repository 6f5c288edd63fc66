"""Prompt lookup: proposals copied from what followed an earlier occurrence of the last tokens.

Each sequence has one index, in arrays like those of an LZ77 coder. A table of hashes stores where
the last lookup_min-gram of each hash ends. Every such place is linked to the one before it. A
committed token costs one write, and a proposal walks a bounded chain. A token takes 8 to 17 bytes;
in a dictionary it takes 120."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache

from specdec_core.config import NgramConfig, SpecMethod, SpeculationConfig
from specdec_core.speculation.drafter import NO_OFFER, Drafter, Offer, Row

_NONE = 0
"""Stands for "no prefix", in place of a prefix length."""
_ID_BITS = 14
"""Bits by which each token ID shifts the key. Keys of two IDs are then small integers. Larger IDs
overlap, which a hash allows."""
_LEAST_SLOTS = 3**6
"""Minimum number of slots of a table. With a power of two, the remainder of a key would be that of
its last ID."""
_GROWTH = 3

_MAX_CHAIN = 32
"""Maximum number of earlier occurrences that one proposal compares. It bounds the cost on
repetitive text."""
_MAX_STEPS = 4 * _MAX_CHAIN
"""Maximum number of chain entries, including those that have only the hash in common. There is
about one of these for each occurrence at most."""

MAX_MATCH = 8
"""Length of a match from which on all are of one kind. A lookup need not compare more."""
_KINDS = (0, 0, 1, 2, 3, 3, 4, 4, 5)
"""Kind of a copied token by the length of the match before it."""
_CHANCES = ((0.24, 0.18), (0.5, 0.43), (0.69, 0.58), (0.7, 0.64), (0.78, 0.73), (0.91, 0.76))
"""Acceptance of each kind, (greedy, sampled). Measured on 120 prompts of Spec-Bench with the demo
model, greedy and at temperature 0.8."""


class NgramDrafter(Drafter):
    """Prompt lookup as a Drafter.

    Each copied token that is accepted makes the match longer for the next one. So a token at place
    j after a match of m tokens is as good as the first one after m + j.
    """

    name = SpecMethod.NGRAM.value

    def __init__(self, config: SpeculationConfig) -> None:
        self.lengths = config.lookup

    def begin(self, row: Row) -> NgramIndex:
        return NgramIndex(row.ids, self.lengths, is_drawn=row.rules.params.temperature > 0.0)

    def propose(self, rows: Sequence[Row], most: Sequence[int]) -> list[Offer]:
        offers = []
        for row, num_tokens in zip(rows, most, strict=True):
            index = row.draft_state
            assert isinstance(index, NgramIndex), "begin has made it"
            tokens = index.propose(num_tokens)
            if tokens:
                estimated = estimates(index.match_len, len(tokens), index.is_drawn)
                # Offer(...) fills in defaults, which takes twice as long.
                offers.append(tuple.__new__(Offer, (tokens, *estimated)))
            else:
                offers.append(NO_OFFER)
        return offers


@cache
def estimates(
    match_len: int, count: int, is_drawn: bool
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the chances and kinds of `count` tokens after a match of `match_len`."""
    lengths = range(match_len, match_len + count)
    kinds = tuple(_KINDS[min(length, MAX_MATCH)] for length in lengths)
    return tuple(_CHANCES[kind][is_drawn] for kind in kinds), kinds


class NgramIndex:
    """Earlier occurrences of every suffix of a growing list of token IDs, which the caller owns."""

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
        "is_drawn",
        "match_len",
    )

    def __init__(self, ids: Sequence[int], config: NgramConfig, *, is_drawn: bool = False) -> None:
        """`is_drawn`: whether the sequence's tokens are sampled, at a temperature above 0."""
        self._ids = ids
        self.is_drawn = is_drawn
        self._min = config.lookup_min
        self._max = config.lookup_max
        self._key = 0
        """Key of the last lookup_min IDs."""
        self._key_mask = _key_mask(self._min)
        self._links = array("i")
        """Entry i: for the prefix of i + 1 IDs, the length of the prefix before it in its slot."""
        self._table = array("i")
        """Hash of a lookup_min-gram -> length of the latest prefix that ends with it."""
        self._begin = 0
        """Number of IDs before those in the current table."""
        self._older: tuple[array[int], ...] = ()
        """Full tables, which are not changed. So no token waits until all entries are moved."""
        self.match_len = 0
        """Number of IDs before the last proposal's source that match the last IDs, at most
        lookup_max."""

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """Return what followed the most recent occurrence of the longest known suffix, or ().

        A copy that reaches the end of the IDs continues with its own beginning, so a loop is
        continued.
        """
        links = self._links
        if len(links) < len(self._ids):
            self._catch_up()
        if not links or (links[-1] == _NONE and not self._older):
            return ()  # the usual case in texts that do not repeat themselves
        start = self._find_continuation()
        if start == _NONE:
            return ()
        copied = list(self._ids[start : start + num_tokens])
        while len(copied) < num_tokens:  # the copy reached the end and repeats itself
            copied += copied[: num_tokens - len(copied)]
        return tuple(copied)

    def _catch_up(self) -> None:
        ids, links = self._ids, self._links
        if len(ids) > self._begin + len(self._table):
            self._begin_table()
        key, mask, table = self._key, self._key_mask, self._table
        num_slots = len(table)
        for index in range(len(links), len(ids)):
            key = (key << _ID_BITS ^ ids[index]) & mask
            slot = key % num_slots
            links.append(table[slot])
            table[slot] = index + 1
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
        """Return the length of the prefix whose end has the longest match, the latest of
        several."""
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
            if ids[end - 1] == ids[-1]:  # otherwise only the hash is equal
                match_len, longest = 1, min(self._max, end)
                while match_len < longest and ids[end - match_len - 1] == ids[-match_len - 1]:
                    match_len += 1
                num_seen += match_len >= self._min
                if match_len > best_len:
                    best_len, best = match_len, end
            end = links[end - 1]
        self.match_len = best_len
        return best


@cache
def _key_mask(num_ids: int) -> int:
    """Return one shared object for all indexes, because one per sequence would be a cache miss."""
    return (1 << _ID_BITS * num_ids) - 1
