"""Prompt lookup: proposals copied from what followed an earlier occurrence of the last tokens.

Each sequence has one index, in arrays like those of an LZ77 coder. A table of hashes stores where
the last lookup_min-gram of each hash ends. Every such place is linked to the one before it. A
committed token costs one write, and a proposal walks a bounded chain. A token takes 8 to 17 bytes;
in a dictionary it takes 120."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import cycle, islice

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


_new_array = partial(array, "i")


@dataclass(eq=False, slots=True)
class NgramIndex:
    """Earlier occurrences of every suffix of a growing list of token IDs, which the caller owns."""

    _ids: Sequence[int]
    _config: NgramConfig
    is_drawn: bool = field(default=False, kw_only=True)
    """Whether the sequence's tokens are sampled, at a temperature above 0."""
    match_len: int = field(default=0, init=False)
    """Number of IDs before the last proposal's source that match the last IDs, at most
    lookup_max."""
    _key: int = field(default=0, init=False)
    """Key of the last lookup_min IDs."""
    _links: array[int] = field(default_factory=_new_array, init=False)
    """Entry i: for the prefix of i + 1 IDs, the length of the prefix before it in its slot."""
    _table: array[int] = field(default_factory=_new_array, init=False)
    """Hash of a lookup_min-gram -> length of the latest prefix that ends with it."""
    _begin: int = field(default=0, init=False)
    """Number of IDs before those in the current table."""
    _older: tuple[array[int], ...] = field(default=(), init=False)
    """Full tables, which are not changed. So no token waits until all entries are moved."""

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """Return what followed the most recent occurrence of the longest known suffix, or ()."""
        ids, links = self._ids, self._links
        if len(links) < len(ids):
            self._catch_up()
        if not links or (links[-1] == _NONE and not self._older):
            return ()  # the usual case in texts that do not repeat themselves
        least, most = self._config.lookup_min, self._config.lookup_max
        end, num_older = links[-1], len(self._older)
        best_len, start, num_seen = least - 1, _NONE, 0
        for _ in range(_MAX_STEPS):
            if end == _NONE and num_older > 0:
                end, num_older = self._end_in_older(num_older)
            if end == _NONE or best_len == most or num_seen == _MAX_CHAIN:
                break
            if ids[end - 1] == ids[-1]:  # otherwise only the hash is equal
                match_len, longest = 1, min(most, end)
                while match_len < longest and ids[end - match_len - 1] == ids[-match_len - 1]:
                    match_len += 1
                num_seen += match_len >= least
                if match_len > best_len:
                    best_len, start = match_len, end
            end = links[end - 1]
        self.match_len = best_len
        if start == _NONE:
            return ()
        copied = tuple(ids[start : start + num_tokens])
        return copied if len(copied) == num_tokens else _repeated(copied, num_tokens)

    def _end_in_older(self, num_older: int) -> tuple[int, int]:
        """Return the latest prefix in the first `num_older` full tables that ends with the last
        lookup_min-gram, and the number of the tables before it."""
        for number in reversed(range(num_older)):
            table = self._older[number]
            end = table[self._key % len(table)]
            if end != _NONE:
                return end, number
        return _NONE, 0

    def _catch_up(self) -> None:
        ids, links, table = self._ids, self._links, self._table
        if len(ids) > self._begin + len(table):  # put the full table aside for a larger one
            if table:
                self._older += (table,)
            self._begin = len(links)
            num_slots = max(len(table) * _GROWTH, _LEAST_SLOTS)
            while num_slots < len(ids) - self._begin:
                num_slots *= _GROWTH
            self._table = table = array("i", [_NONE]) * num_slots
        key, mask, num_slots = self._key, _key_mask(self._config.lookup_min), len(table)
        for index in range(len(links), len(ids)):
            key = (key << _ID_BITS ^ ids[index]) & mask
            slot = key % num_slots
            links.append(table[slot])
            table[slot] = index + 1
        self._key = key


def _repeated(copied: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    """Return a copy that reached the end of the text, continued as if the text were a loop."""
    return tuple(islice(cycle(copied), num_tokens))


@cache
def _key_mask(num_ids: int) -> int:
    """Return one shared object for all indexes, because one per sequence would be a cache miss."""
    return (1 << _ID_BITS * num_ids) - 1
