"""What a target finds in its prefix cache holds no stream up: it is not counted as catching up."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.messages import LeaseRow
from specdec_core.scheduler.ready_queue import PrefixIndex
from specdec_core.scheduler.rows import plan_verification
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info

BLOCK = 4
COMMON = (1, 2, 3, 4, 0, 1, 2, 3)


def sequence(ids: tuple[int, ...], *, salt: str = "", is_scored: bool = False) -> Sequence:
    asked = replace(request("a", ids, max_tokens=4), cache_salt=salt)
    if is_scored:
        asked = replace(asked, params=replace(asked.params, num_prompt_logprobs=0))
    return Sequence(0, asked, arrived_at=0.0)


def row_of(one: Sequence, cached_len: int = 0, chunk: int = 100) -> LeaseRow:
    return plan_verification(one, KVReservation("t", cached_len=cached_len), (), chunk).lease_row


def known(*prompts: tuple[int, ...], num_blocks: int = 100) -> PrefixIndex:
    prefixes = PrefixIndex(BLOCK, num_blocks)
    for ids in prompts:
        one = sequence(ids)
        prefixes.learn(one, 0, len(ids))
    return prefixes


def num_matched(prefixes: PrefixIndex, one: Sequence, cached_len: int = 0) -> int:
    return prefixes.num_matched(one, row_of(one, cached_len))


def test_equal_beginnings_are_found_in_whole_blocks() -> None:
    prefixes = known((*COMMON, 4, 4, 4))
    assert num_matched(prefixes, sequence((*COMMON, 4, 0))) == 8
    assert num_matched(prefixes, sequence((*COMMON[:6], 0, 0, 0))) == 4
    assert num_matched(prefixes, sequence((0, *COMMON))) == 0


def test_what_is_cached_already_is_not_found_once_more() -> None:
    assert num_matched(known((*COMMON, 4)), sequence((*COMMON, 0, 0)), cached_len=5) == 3


def test_the_id_that_is_chosen_behind_is_fed_all_the_same() -> None:
    one = sequence(COMMON)
    assert num_matched(known(COMMON), one) == 4
    chunk = row_of(sequence((*COMMON, 1)), chunk=8)
    assert known(COMMON).num_matched(sequence((*COMMON, 1)), chunk) == 8


def test_another_salt_finds_nothing() -> None:
    prefixes = known(COMMON)
    assert num_matched(prefixes, sequence((*COMMON, 1), salt="theirs")) == 0
    theirs = sequence(COMMON, salt="theirs")
    prefixes.learn(theirs, 0, len(COMMON))
    assert num_matched(prefixes, sequence((*COMMON, 1), salt="theirs")) == 8


def test_a_long_salt_costs_as_little_as_none() -> None:
    """Whoever sends requests chooses it: it is not hashed for every block."""
    salted = sequence(COMMON * 30, salt="s" * 256)
    started = time.process_time()
    for _ in range(100):
        known(COMMON * 30).num_matched(salted, row_of(salted))
        known().learn(salted, 0, 240)
    assert time.process_time() - started < 0.5


def test_a_prompt_whose_logprobs_are_asked_for_is_computed() -> None:
    assert num_matched(known(COMMON), sequence((*COMMON, 1), is_scored=True)) == 0


def test_the_blocks_that_were_fed_last_are_remembered() -> None:
    first, second, third = (3,) * 8, (2,) * 8, (1,) * 8
    prefixes = known(first, second, first, third, num_blocks=4)
    assert len(prefixes) == 4
    found = [num_matched(prefixes, sequence((*ids, 0))) for ids in (first, second, third)]
    assert found == [8, 0, 8]


@settings(max_examples=40)
@given(
    fed=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20), max_size=5),
    ids=st.lists(st.integers(0, 1), min_size=1, max_size=20),
    cached_len=st.integers(0, 19),
    chunk=st.integers(1, 20),
)
def test_as_much_is_found_as_some_prompt_shares(
    fed: list[list[int]], ids: list[int], cached_len: int, chunk: int
) -> None:
    one = sequence(tuple(ids))
    row = row_of(one, min(cached_len, len(ids) - 1), chunk)
    most = row.end_len - min(row.num_choices, 1)
    ends = [
        end
        for end in range(BLOCK, most + 1, BLOCK)
        if end > row.base_len and any(other[:end] == ids[:end] for other in fed)
    ]
    expected = max(ends, default=row.base_len) - row.base_len
    assert known(*map(tuple, fed)).num_matched(one, row) == expected


def test_ends_are_forgotten_before_beginnings() -> None:
    prefixes = known((*COMMON, 1, 1, 1, 1), (4,) * 4, num_blocks=3)
    assert num_matched(prefixes, sequence((*COMMON, 1, 1, 1, 1, 0))) == 8


def test_behind_what_was_forgotten_nothing_is_found() -> None:
    prefixes, one = known((4,) * 4, num_blocks=3), sequence((*COMMON, 1, 1, 1, 1, 0))
    prefixes.learn(one, 0, 8)
    prefixes.learn(one, 8, 12)
    assert num_matched(prefixes, one) == 12
    prefixes.learn(sequence((4,) * 4), 0, 4)
    assert num_matched(prefixes, one) == 4


def test_what_is_decoded_is_known_too() -> None:
    cell = Cell(config(max_prefill_tokens=8))
    cell.join(info(keeps_prefixes=True))
    asked = cell.add(request("a", COMMON, max_tokens=6))
    cell.run()
    ready_queue = cell.pool._replicas.by_id["target"].ready_queue
    turn = sequence((*COMMON, *asked.token_ids, 1, 1))
    assert ready_queue.prefix_index is not None
    assert num_matched(ready_queue.prefix_index, turn) == 12


def burst(cell: Cell, *names: str) -> list[int]:
    """How many ids the next lease feeds of each request, all of one beginning."""
    for name in names:
        cell.add(request(name, (*COMMON, len(cell.clients)), max_tokens=2))
    cell.advance()
    return [len(row.new_ids) for row in cell.leases[-1].rows]


@pytest.mark.parametrize(("keeps_prefixes", "at_once"), [(True, [9, 9, 9]), (False, [9])])
def test_prompts_of_a_known_beginning_go_at_once(keeps_prefixes: bool, at_once: list[int]) -> None:
    cell = Cell(config(max_prefill_tokens=8))
    cell.join(info(keeps_prefixes=keeps_prefixes))
    assert burst(cell, "a") == [9]
    cell.run()
    assert burst(cell, "b", "c", "d") == at_once


def test_a_replica_that_comes_back_has_forgotten() -> None:
    cell = Cell(config(max_prefill_tokens=8))
    cell.join(info(keeps_prefixes=True))
    burst(cell, "a")
    cell.run()
    cell.join(info(keeps_prefixes=True, incarnation=2))
    assert burst(cell, "b", "c", "d") == [9]


def test_of_a_sequence_that_has_ended_what_it_has_ids_for_is_known() -> None:
    """Its target has cached one more, which the client's limit cut off."""
    prefixes, one = PrefixIndex(BLOCK, 100), sequence(COMMON[:7])
    prefixes.learn(one, 0, 8)
    assert len(prefixes) == 1


def test_every_change_has_a_version_of_its_own() -> None:
    prefixes = PrefixIndex(BLOCK, 100)
    versions = [prefixes.version]
    for ids in (COMMON, (*COMMON[1:], 4), (0, *COMMON)):
        prefixes.learn(sequence(ids), 0, len(ids))
        versions.append(prefixes.version)
    assert len(set(versions)) == 4


def test_a_row_of_drafted_tokens_finds_what_one_without_them_does() -> None:
    one = sequence((*COMMON, 1))
    row = row_of(one)._replace(proposal=(1, 1), num_choices=3)
    assert known((*COMMON, 1)).num_matched(one, row) == 8


def test_what_was_found_of_a_prompt_is_counted_anew_when_it_begins_anew() -> None:
    one = sequence((*COMMON, 1))
    one.note_matched(0, 4)
    one.note_matched(4, 4)
    assert one.num_cached_prompt == 8
    one.note_matched(0, 4)
    assert one.num_cached_prompt == 4
    one.append((2,))
    one.note_matched(0, 8)
    assert one.num_cached_prompt == 4, "what is fed again behind the first token"
