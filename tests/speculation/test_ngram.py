"""Prompt lookup against a search by brute force."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config import NgramConfig
from specdec_core.speculation.ngram import NgramIndex

CONFIG = NgramConfig(lookup_min=2, lookup_max=4)


def propose(ids: list[int], num_tokens: int, config: NgramConfig = CONFIG) -> tuple[int, ...]:
    return NgramIndex(ids, config).propose(num_tokens)


def brute_force(ids: list[int], num_tokens: int, config: NgramConfig) -> tuple[int, ...]:
    return searched(ids, num_tokens, config)[0]


def searched(ids: list[int], num_tokens: int, config: NgramConfig) -> tuple[tuple[int, ...], int]:
    """What is proposed, and how many ids before it agree."""
    for n in range(config.lookup_max, config.lookup_min - 1, -1):
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - n : end] == ids[-n:]:
                known = list(ids)
                for _ in range(num_tokens):
                    known.append(known[end + len(known) - len(ids)])
                return tuple(known[len(ids) :]), n
    return (), 0


def test_what_followed_the_last_tokens_is_proposed() -> None:
    assert propose([1, 2, 3, 4, 9, 1, 2], 2) == (3, 4)


def test_the_longest_suffix_wins_over_a_more_recent_shorter_one() -> None:
    assert propose([7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2], 1) == (30,)


def test_the_most_recent_of_equally_long_occurrences_wins() -> None:
    assert propose([1, 2, 30, 1, 2, 40, 1, 2], 1) == (40,)


def test_a_loop_is_continued_beyond_the_end() -> None:
    assert propose([5, 1, 2, 1, 2], 5) == (1, 2, 1, 2, 1)


def test_nothing_is_proposed_where_nothing_occurred_before() -> None:
    assert propose([1, 2, 3, 4], 3) == ()


def test_fewer_ids_than_the_shortest_ngram_propose_nothing() -> None:
    assert propose([], 3) == ()
    assert propose([1], 3) == ()


@given(
    ids=st.lists(st.integers(0, 2), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    num_tokens=st.integers(1, 6),
    bounds=st.sampled_from([(1, 1), (1, 3), (2, 4), (3, 3)]),
)
def test_an_index_that_grows_finds_what_a_search_finds(
    ids: list[int], cuts: list[int], num_tokens: int, bounds: tuple[int, int]
) -> None:
    config = NgramConfig(lookup_min=bounds[0], lookup_max=bounds[1])
    growing: list[int] = []
    index = NgramIndex(growing, config)
    for cut in sorted(cuts):
        growing += ids[len(growing) : cut]
        found, match_len = searched(growing, num_tokens, config)
        assert index.propose(num_tokens) == found
        assert not found or index.match_len == match_len


@pytest.mark.parametrize("vocab_size", [60, 50_000])
def test_a_long_list_that_grows_finds_what_a_search_finds(vocab_size: int) -> None:
    """Through several tables; a third of what comes is copied from earlier ids."""
    rng = random.Random(vocab_size)
    ids: list[int] = []
    index = NgramIndex(ids, CONFIG)
    num_found = 0
    while len(ids) < 4000:
        start, length = rng.randrange(len(ids) + 1), rng.randint(1, 60)
        is_copy = rng.random() < 0.3
        new = [rng.randrange(vocab_size) for _ in range(length)]
        ids += ids[start : start + length] if is_copy else new
        found = index.propose(4)
        assert found == brute_force(ids, 4, CONFIG)
        num_found += bool(found)
    assert num_found > 10


class Watched(list[int]):
    """Counts how often it is read."""

    num_reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.num_reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize(
    "ids", [[x for i in range(2500) for x in (100 + i, 7)], [place << 14 for place in range(5000)]]
)
def test_a_proposal_looks_at_few_places_whatever_the_ids(ids: list[int]) -> None:
    """A client may send such."""
    watched = Watched(ids)
    index = NgramIndex(watched, NgramConfig(lookup_min=1, lookup_max=4))
    index.propose(1)
    watched.num_reads = 0  # of the building: one read for each id
    index.propose(1)
    assert watched.num_reads < 600


def test_an_index_takes_few_bytes_per_token() -> None:
    """Ten thousand sequences of a thousand tokens: 160 MB of the coordinator's memory at most."""
    ids = random.Random(0).choices(range(50_000), k=1000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = NgramIndex(ids, CONFIG)
    for _ in range(20):
        index.propose(4)
    num_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert num_bytes < 16 * len(ids)
