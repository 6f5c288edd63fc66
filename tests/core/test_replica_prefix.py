"""A replica feeds only what no sequence before it left, and nobody can tell but by the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdec_core import SamplingParams
from specdec_core.messages import EMPTY_HASH, LeaseRow, Role, RowResult, RowStatus
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingRules
from specdec_core.scheduler.ready_queue import PrefixIndex
from specdec_core.scheduler.rows import plan_verification
from specdec_core.scheduler.sequence import KVReservation, Sequence
from specdec_core.worker import round as speculative_round
from specdec_core.worker.replica import Replica
from tests.core.test_replica import greedy, row, run
from tests.paged_fake import PagedTokenModel

RULES = SamplingRules(SamplingParams(temperature=0.0, max_tokens=100), prompt_len=12)
SHARED = tuple(range(12))
"""Three blocks."""


class Cell:
    """A replica and how many tokens each lease fed."""

    def __init__(self, role: Role = Role.TARGET, **options: object) -> None:
        self.model = PagedTokenModel(**options)  # type: ignore[arg-type]
        self.replica = Replica(self.model, role)
        self.role = role
        self.num_fed = 0

    def run(self, *rows: LeaseRow) -> tuple[RowResult, ...]:
        before = self.model.num_fed
        results = run(self.replica, *rows, role=self.role)
        self.num_fed = self.model.num_fed - before
        return results

    def end(self, sequence_ids: Iterable[int]) -> None:
        """Nothing is held any more."""
        self.replica.free(sequence_ids)
        assert self.model.num_slots == 0
        assert self.model.num_free_blocks == self.model.num_blocks


def first(ids: tuple[int, ...], sequence_id: int, **fields: object) -> LeaseRow:
    """The first row of a sequence."""
    fields = {"rules": RULES, "num_choices": 1, **fields}
    return row(ids, 0, sequence_id=sequence_id, **fields)


@pytest.mark.parametrize("is_freed", [True, False])
@pytest.mark.parametrize("role", Role)
def test_a_second_sequence_feeds_what_the_first_did_not(role: Role, is_freed: bool) -> None:
    cell = Cell(role)
    cell.run(first((*SHARED, 20, 21), 1))
    assert cell.num_fed == 14
    if is_freed:
        cell.replica.free([1])
    (result,) = cell.run(first((*SHARED, 22, 23, 24), 2))
    assert cell.num_fed == 3
    assert (result.tokens, result.cached_len) == (greedy(cell.model, (*SHARED, 22, 23, 24), 1), 15)
    cell.end([1, 2])


def test_the_last_token_is_fed_where_a_token_is_chosen() -> None:
    cell = Cell()
    cell.run(first(SHARED, 1))
    (result,) = cell.run(first(SHARED, 2))
    assert cell.num_fed == 4
    assert result.tokens == greedy(cell.model, SHARED, 1)
    (chunk,) = cell.run(first(SHARED, 3, num_choices=0))
    assert (cell.num_fed, chunk.tokens, chunk.cached_len) == (0, (), 12)


@pytest.mark.parametrize("chunk_len", [4, 5, 6, 8])
def test_chunk_after_chunk_is_adopted(chunk_len: int) -> None:
    """Also where chunks end inside of blocks: what is missing of one is taken with the next."""
    cell = Cell()
    ids = (*SHARED, *SHARED, 30)
    cell.run(first(ids, 1))
    for start in range(0, 24, chunk_len):
        end = min(start + chunk_len, 24)
        rules = RULES if start == 0 else None
        (result,) = cell.run(row(ids[:end], start, sequence_id=2, rules=rules))
        assert result.cached_len == end
        assert cell.num_fed == end % 4
    (result,) = cell.run(row(ids, 24, sequence_id=2, num_choices=1))
    assert result.tokens == greedy(cell.model, ids, 1)


def test_a_row_that_scores_its_prompt_feeds_all_of_it() -> None:
    cell = Cell()
    rules = replace(RULES, params=replace(RULES.params, num_prompt_logprobs=0))
    cell.run(first(SHARED, 1))
    (result,) = cell.run(first(SHARED, 2, num_scored=11, rules=rules))
    assert cell.num_fed == 12
    for place, entry in enumerate(result.prompt_logprobs, start=1):
        expected = cell.model.logits(SHARED[:place]).log_softmax(dim=-1)
        assert entry.logprob == float(expected[SHARED[place]])
    assert len(result.prompt_logprobs) == 11


def test_without_a_prefix_cache_all_is_fed() -> None:
    cell = Cell(enable_prefix_caching=False)
    for sequence_id in (1, 2):
        cell.run(first((*SHARED, 20), sequence_id))
        assert cell.num_fed == 13


def test_the_next_turn_of_a_chat_adopts_the_answer() -> None:
    """What was accepted is there; what was rejected is fed again, from the block it stands in."""
    cell = Cell()
    a, b, c, d, e = greedy(cell.model, SHARED, 5)
    wrong = (e + 1) % cell.model.vocab_size
    cell.run(first(SHARED, 1, proposal=(a, b, c, d, wrong), num_choices=6))
    cell.replica.free([1])
    (result,) = cell.run(first((*SHARED, a, b, c, d, wrong, 1, 2, 3, 4), 2))
    assert cell.num_fed == 5
    assert result.tokens == greedy(cell.model, (*SHARED, a, b, c, d, wrong, 1, 2, 3, 4), 1)


def test_what_a_draft_only_drafted_is_not_found_until_it_is_committed() -> None:
    cell = Cell(Role.DRAFT)
    (drafted,) = cell.run(first(SHARED, 1, num_choices=6))
    ids = (*SHARED, *drafted.tokens)
    cell.run(first((*ids, 1), 2, num_choices=0))
    assert cell.num_fed == 7
    cell.replica.free([2])
    cell.run(row((*ids, 1, 2), 17, sequence_id=1, num_choices=1))
    cell.run(first((*ids, 1), 3, num_choices=0))
    assert cell.num_fed == 3
    cell.end([1, 3])


def test_a_rollback_into_a_shared_block_spares_the_others() -> None:
    cell = Cell()
    cell.run(first((*SHARED, 20), 1))
    cell.run(first((*SHARED, 21), 2))
    ids = (*SHARED[:10], 25)
    (result,) = cell.run(row(ids, 10, sequence_id=2, num_choices=1))
    assert result.tokens == greedy(cell.model, ids, 1)
    (other,) = cell.run(row((*SHARED, 20, 22), 13, sequence_id=1, num_choices=1))
    assert other.tokens == greedy(cell.model, (*SHARED, 20, 22), 1)
    cell.end([1, 2])


def test_a_copy_without_room_is_refused_and_nothing_is_lost() -> None:
    """Only a pool that promised more blocks than there are can ask for it."""
    cell = Cell(num_blocks=6)
    cell.run(first((*SHARED, 20), 1))
    cell.run(first(SHARED[:8], 2, num_choices=0))
    cell.run(first((20,) * 8, 3))
    (refused,) = cell.run(row((*SHARED[:6], 25), 6, sequence_id=2, num_choices=1))
    assert (refused.status, refused.cached_len) == (RowStatus.NO_ROOM, 8)
    cell.replica.free([3])
    (result,) = cell.run(row((*SHARED[:6], 25), 6, sequence_id=2, num_choices=1))
    assert result.tokens == greedy(cell.model, (*SHARED[:6], 25), 1)


def test_rows_of_one_lease_that_begin_alike_end_with_one_copy() -> None:
    cell = Cell()
    results = cell.run(*[first((*SHARED, 20 + i), i) for i in range(4)])
    for i, result in enumerate(results):
        assert result.tokens == greedy(cell.model, (*SHARED, 20 + i), 1)
    assert cell.model.num_blocks - cell.model.num_free_blocks == 3 + 4
    cell.end(range(4))


def test_a_pass_that_raised_leaves_nothing_to_find() -> None:
    cell = Cell()
    cell.run(first(SHARED[:4], 1))
    cell.model.fails = True
    with pytest.raises(RuntimeError, match="the pass failed"):
        cell.run(first((*SHARED, 20), 2))
    cell.model.fails = False
    cell.run(first((*SHARED, 20), 3))
    assert cell.num_fed == 9
    (result,) = cell.run(row((*SHARED, 21), 4, sequence_id=2, num_choices=1))
    assert result.tokens == greedy(cell.model, (*SHARED, 21), 1)
    cell.end([1, 2, 3])


def test_what_a_failed_row_computed_is_not_found() -> None:
    class Silent(PagedTokenModel):
        is_silent = False

        def logits(self, ids):  # type: ignore[no-untyped-def]
            logits: Tensor = super().logits(ids)
            return torch.full_like(logits, torch.nan) if self.is_silent else logits

    cell = Cell()
    cell.model = Silent()
    cell.replica = Replica(cell.model, Role.TARGET)
    cell.run(first(SHARED, 1, num_choices=0))
    cell.model.is_silent = True
    (failed,) = cell.run(row((*SHARED, 20), 12, sequence_id=1, num_choices=1))
    assert failed.status is RowStatus.FAILED
    cell.model.is_silent = False
    cell.run(first((*SHARED, 20), 2))
    assert cell.num_fed == 13
    cell.end([2])


def test_prompt_tokens_that_were_looked_up_and_found_are_counted() -> None:
    """Answers are neither; a chunk of a prompt counts as far as it goes."""
    cell = Cell()
    (answer,) = cell.run(first(SHARED, 1))
    ids = (*SHARED, *answer.tokens, *greedy(cell.model, (*SHARED, *answer.tokens), 1))
    cell.run(row(ids, 12, sequence_id=1, num_choices=1))
    cell.run(first(SHARED[:8], 2, num_choices=0))
    cell.run(row(SHARED, 8, sequence_id=2, num_choices=1))
    counted = cell.replica.occupancy
    assert (counted.num_prefix_queries, counted.num_prefix_hits) == (24, 8)


def test_sequences_of_other_salts_share_nothing() -> None:
    cell = Cell()
    for salt, sequence_id, num_fed in (("a", 1, 13), ("b", 2, 13), ("", 3, 13), ("a", 4, 1)):
        cell.run(first((*SHARED, 20), sequence_id, rules=replace(RULES, cache_salt=salt)))
        assert cell.num_fed == num_fed


def test_a_replica_starts_with_nothing_whoever_used_its_model() -> None:
    cell = Cell()
    cell.run(first((*SHARED, 20), 1))
    cell.replica = Replica(cell.model, Role.TARGET)
    cell.run(first((*SHARED, 20), 1))
    assert cell.num_fed == 13


def test_what_was_computed_outlives_a_reset() -> None:
    """The coordinator may come back as another one: ids still mean the same."""
    cell = Cell()
    cell.run(first((*SHARED, 20), 1))
    cell.replica.reset()
    assert cell.model.num_free_blocks == cell.model.num_blocks
    cell.run(first((*SHARED, 20), 1))
    assert cell.num_fed == 1


def test_prefixes_whose_hashes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculative_round, "hashes_behind", lambda _, ids: [EMPTY_HASH] * len(ids))
    cell = Cell()
    cell.run(first((*SHARED, 20), 1))
    other = (9, 9, 9, 9, *SHARED[4:], 20)
    (result,) = cell.run(first(other, 2))
    assert cell.num_fed == 13
    assert result.tokens == greedy(cell.model, other, 1)


def test_penalties_count_what_was_adopted() -> None:
    cell = Cell(vocab_size=5, seed=1)
    rules = SamplingRules(replace(RULES.params, repetition_penalty=3.0), prompt_len=5)
    ids = (1, 2, 3, 4, 2)
    (alone,) = cell.run(first(ids, 1, rules=rules))
    (adopting,) = cell.run(first(ids, 2, rules=rules))
    assert cell.num_fed == 1
    assert adopting.tokens == alone.tokens != greedy(cell.model, ids, 1)


@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20), min_size=1, max_size=6),
    chunk=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_the_pool_believes_what_the_replica_finds(prompts: list[list[int]], chunk: int) -> None:
    cell = Cell()
    known = PrefixIndex(cell.model.kv.block_size, cell.model.num_blocks)
    for number, prompt in enumerate(prompts):
        request = Request(
            request_id=str(number), prompt_token_ids=tuple(prompt), params=RULES.params
        )
        sequence, reservation = Sequence(number, request, arrived_at=0.0), KVReservation("t")
        while reservation.cached_len < len(prompt):
            lease_row = plan_verification(sequence, reservation, (), chunk).lease_row
            expected = len(lease_row.new_ids) - known.num_matched(sequence, lease_row)
            (result,) = cell.run(lease_row)
            assert cell.num_fed == expected
            known.learn(sequence, lease_row.base_len, result.cached_len)
            reservation.cached_len, reservation.has_rules = result.cached_len, True
        cell.replica.free([number])
