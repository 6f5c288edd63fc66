"""A replica's promises: what it caches comes from the ids it was told, and it says so."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from specdec_core import SamplingParams
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import Grammar, GrammarKind, GrammarSpec
from specdec_core.messages import (
    EMPTY_HASH,
    GroupLease,
    LeaseRow,
    Role,
    RowResult,
    RowStatus,
    extend_hash,
)
from specdec_core.model import ForwardInput, ForwardOutput
from specdec_core.sampling_params import SamplingRules
from specdec_core.worker.replica import Replica
from tests.fakes import TokenListModel

GREEDY = SamplingRules(SamplingParams(temperature=0.0, max_tokens=100), prompt_len=1)


def greedy(model: TokenListModel, ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    for _ in range(count):
        ids = (*ids, int(model.logits(ids).argmax()))
    return ids[-count:]


def row(ids: tuple[int, ...], base_len: int, *, sequence_id: int = 1, **fields: object) -> LeaseRow:
    return LeaseRow(
        sequence_id=sequence_id,
        base_len=base_len,
        base_hash=extend_hash(EMPTY_HASH, ids[:base_len]),
        new_ids=ids[base_len:],
        **fields,  # type: ignore[arg-type]
    )


def run(
    replica: Replica,
    *rows: LeaseRow,
    role: Role = Role.TARGET,
    min_confidence: float = 0.0,
) -> tuple[RowResult, ...]:
    lease = GroupLease(
        lease_id=1,
        epoch=7,
        replica_id="r",
        role=role,
        rows=rows,
        ttl_s=1.0,
        min_confidence=min_confidence,
    )
    result = replica.execute(lease)
    assert (result.lease_id, result.epoch, result.replica_id) == (1, 7, "r")
    return result.rows


def test_a_round_accepts_the_matching_prefix_and_caches_n_minus_1() -> None:
    model = TokenListModel()
    prompt = (1, 2, 3)
    a, b, c = greedy(model, prompt, 3)
    proposal = (a, b, (c + 1) % model.vocab_size)
    (result,) = run(
        Replica(model, Role.TARGET),
        row(prompt, 0, proposal=proposal, num_choices=4, rules=GREEDY),
    )
    assert result.tokens == (a, b, c)
    assert result.num_accepted == 2
    assert result.cached_len == len(prompt) + 2


class _RecordingModel(TokenListModel):
    """Records in every pass, for a while."""

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        time.sleep(0.03)
        self.recording_s += 0.03
        return super().forward(batch)


def test_what_is_recorded_for_later_is_told_apart() -> None:
    lease = GroupLease(
        lease_id=1,
        epoch=7,
        replica_id="r",
        role=Role.TARGET,
        rows=(row((1, 2, 3), 0, num_choices=1, rules=GREEDY),),
        ttl_s=1.0,
    )
    replica = Replica(_RecordingModel(), Role.TARGET)
    for _ in range(2):
        result = replica.execute(lease)
        assert result.recording_s == pytest.approx(0.03)
        assert result.seconds > result.recording_s


def test_the_next_round_continues_behind_the_accepted_prefix() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    (first,) = run(replica, row((1, 2, 3), 0, num_choices=1, rules=GREEDY))
    ids = (1, 2, 3, *first.tokens)
    (second,) = run(replica, row(ids, first.cached_len, num_choices=1))
    assert second.tokens == greedy(model, ids, 1)


def test_a_chunk_commits_nothing_and_is_cached() -> None:
    replica = Replica(TokenListModel(), Role.TARGET)
    (result,) = run(replica, row((1, 2, 3, 4), 0, rules=GREEDY))
    assert (result.tokens, result.cached_len) == ((), 4)


def test_an_unknown_sequence_is_a_miss_for_that_row_alone() -> None:
    model = TokenListModel()
    missing, fine = run(
        Replica(model, Role.TARGET),
        row((1, 2, 3), 2, sequence_id=1, num_choices=1),
        row((4, 5), 0, sequence_id=2, num_choices=1, rules=GREEDY),
    )
    assert (missing.status, missing.cached_len) == (RowStatus.KV_MISS, 0)
    assert fine.tokens == greedy(model, (4, 5), 1)


def test_a_base_beyond_the_cache_is_a_miss_that_says_what_is_there() -> None:
    replica = Replica(TokenListModel(), Role.TARGET)
    run(replica, row((1, 2), 0, rules=GREEDY))
    (result,) = run(replica, row((1, 2, 3, 4), 3, num_choices=1))
    assert (result.status, result.cached_len) == (RowStatus.KV_MISS, 2)


def test_other_ids_at_the_same_length_are_a_miss() -> None:
    replica = Replica(TokenListModel(), Role.TARGET)
    run(replica, row((1, 2), 0, rules=GREEDY))
    (result,) = run(replica, row((1, 9, 3), 2, num_choices=1))
    assert (result.status, result.cached_len) == (RowStatus.KV_MISS, 0)


def test_truncation_to_base_len_is_the_rollback() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    run(replica, row((1, 2, 3, 4), 0, rules=GREEDY))
    (result,) = run(replica, row((1, 2, 9), 2, num_choices=1))
    assert result.tokens == greedy(model, (1, 2, 9), 1)


def test_ids_behind_a_truncation_are_known_by_their_hash() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    run(replica, row((1, 2, 3, 4), 0, rules=GREEDY))
    run(replica, row((1, 2, 9, 8), 2))
    (result,) = run(replica, row((1, 2, 9, 8, 7), 4, num_choices=1))
    assert result.tokens == greedy(model, (1, 2, 9, 8, 7), 1)


def test_answers_come_in_the_order_of_the_rows() -> None:
    model = TokenListModel()
    results = run(
        Replica(model, Role.TARGET),
        row((4, 5), 0, sequence_id=2, num_choices=1, rules=GREEDY),
        row((1, 2, 3), 2, sequence_id=1, num_choices=1),
        row((6,), 0, sequence_id=3, num_choices=1, rules=GREEDY),
    )
    assert [result.sequence_id for result in results] == [2, 1, 3]


def test_a_draft_caches_all_drafted_tokens_but_the_last() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.DRAFT)
    (result,) = run(replica, row((1, 2), 0, num_choices=3, rules=GREEDY), role=Role.DRAFT)
    assert result.tokens == greedy(model, (1, 2), 3)
    assert result.cached_len == 4


def test_a_draft_that_is_never_sure_proposes_nothing_and_keeps_what_it_read() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.DRAFT)
    asked = row((1, 2), 0, num_choices=3, rules=GREEDY)
    (result,) = run(replica, asked, role=Role.DRAFT, min_confidence=1.0)
    assert (result.status, result.tokens, result.cached_len) == (RowStatus.OK, (), 2)


def test_drafts_of_different_lengths_share_a_lease() -> None:
    model = TokenListModel()
    results = run(
        Replica(model, Role.DRAFT),
        row((1, 2), 0, sequence_id=1, num_choices=3, rules=GREEDY),
        row((5,), 0, sequence_id=2, num_choices=1, rules=GREEDY),
        row((7, 8), 0, sequence_id=3, rules=GREEDY),
        role=Role.DRAFT,
    )
    expected = [greedy(model, (1, 2), 3), greedy(model, (5,), 1), ()]
    assert [result.tokens for result in results] == expected
    assert [result.cached_len for result in results] == [4, 1, 2]


def test_a_row_without_room_is_refused_before_anything_is_fed() -> None:
    model = TokenListModel(num_blocks=2, block_size=4)
    fits, refused = run(
        Replica(model, Role.TARGET),
        row((1,) * 5, 0, sequence_id=1, num_choices=1, rules=GREEDY),
        row((2,) * 3, 0, sequence_id=2, num_choices=1, rules=GREEDY),
    )
    assert fits.status is RowStatus.OK
    assert (refused.status, refused.cached_len) == (RowStatus.NO_ROOM, 0)
    assert model.num_free_blocks == 0


def test_the_room_of_a_proposal_is_counted() -> None:
    model = TokenListModel(num_blocks=2, block_size=4)
    replica = Replica(model, Role.TARGET)
    asked = row((1, 2, 3), 0, proposal=(4,) * 6, num_choices=7, rules=GREEDY)
    (refused,) = run(replica, asked)
    assert (refused.status, refused.cached_len) == (RowStatus.NO_ROOM, 0)
    assert model.num_free_blocks == 2
    (drafted,) = run(
        Replica(model, Role.DRAFT), row((1,), 0, num_choices=9, rules=GREEDY), role=Role.DRAFT
    )
    assert drafted.status is RowStatus.NO_ROOM
    (fits,) = run(
        Replica(model, Role.DRAFT), row((1,), 0, num_choices=8, rules=GREEDY), role=Role.DRAFT
    )
    assert fits.status is RowStatus.OK


def test_freeing_and_resetting_give_every_slot_back() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    run(replica, *[row((i,), 0, sequence_id=i, num_choices=1, rules=GREEDY) for i in (1, 2, 3)])
    replica.free([2, 99])
    assert (replica.occupancy.num_slots, model.num_slots) == (2, 2)
    replica.reset()
    assert (replica.occupancy.num_slots, model.num_slots) == (0, 0)
    assert model.num_free_blocks == model.num_blocks


def test_a_row_whose_grammar_cannot_be_read_fails_alone() -> None:
    def refuse(spec: GrammarSpec) -> Grammar:
        raise InvalidRequestError(f"cannot read {spec.source}")

    model = TokenListModel()
    spec = GrammarSpec(GrammarKind.REGEX, "([")
    asked = SamplingRules(SamplingParams(max_tokens=9, grammar=spec), 1)
    for grammars, message in ((refuse, "cannot read (["), (None, "not supported here")):
        replica = Replica(model, Role.TARGET, grammars)
        failed, fine = run(
            replica,
            row((1,), 0, sequence_id=1, num_choices=1, rules=asked),
            row((2,), 0, sequence_id=2, num_choices=1, rules=GREEDY),
        )
        assert (failed.status, fine.status) == (RowStatus.INVALID, RowStatus.OK)
        assert message in failed.error
        assert replica.occupancy.num_slots == 1
        replica.reset()


def test_a_row_where_nothing_may_be_chosen_fails_alone() -> None:
    class Silent(TokenListModel):
        def logits(self, ids):  # type: ignore[no-untyped-def]
            logits = super().logits(ids)
            return logits.fill_(float("-inf")) if ids[0] == 1 else logits

    failed, fine = run(
        Replica(Silent(), Role.TARGET),
        row((1,), 0, sequence_id=1, num_choices=1, rules=GREEDY),
        row((2,), 0, sequence_id=2, num_choices=1, rules=GREEDY),
    )
    assert failed.status is RowStatus.FAILED
    assert "no token can be chosen" in failed.error
    assert fine.status is RowStatus.OK


EVERY_ID = tuple((token_id,) for token_id in range(31))
BAN_ALL: list[dict[str, Any]] = [
    {"bad_words": EVERY_ID},
    {"allowed_token_ids": (3, 4), "bad_words": ((3,), (4,))},
    {"min_tokens": 2, "allowed_token_ids": (3, 4), "stop_token_ids": (3, 4)},
    {"min_tokens": 2, "stop_token_ids": tuple(range(31))},
]


@pytest.mark.parametrize("fields", BAN_ALL)
def test_rules_that_ban_every_id_are_the_callers_mistake(fields: dict[str, Any]) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=9, **fields)
    rules = SamplingRules(params, 1, frozenset(params.stop_token_ids))
    failed, fine = run(
        Replica(TokenListModel(), Role.TARGET),
        row((1,), 0, sequence_id=1, num_choices=1, rules=rules),
        row((2,), 0, sequence_id=2, num_choices=1, rules=GREEDY),
    )
    assert failed.status is RowStatus.INVALID
    assert "ban every token" in failed.error
    assert fine.status is RowStatus.OK


def test_a_model_without_numbers_is_no_mistake_of_the_caller() -> None:
    class Silent(TokenListModel):
        def logits(self, ids):  # type: ignore[no-untyped-def]
            return super().logits(ids).fill_(float("nan"))

    rules = SamplingRules(SamplingParams(temperature=0.0, max_tokens=9, bad_words=((3,),)), 1)
    (failed,) = run(Replica(Silent(), Role.TARGET), row((1,), 0, num_choices=1, rules=rules))
    assert failed.status is RowStatus.FAILED


def test_rules_are_sent_once_and_kept_with_the_sequence() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    (first,) = run(replica, row((1, 2, 3), 0, num_choices=1, rules=GREEDY))
    ids = (1, 2, 3, *first.tokens)
    banned = SamplingRules(
        replace(GREEDY.params, bad_words=((greedy(model, ids, 1)),)), prompt_len=3
    )
    (kept,) = run(replica, row(ids, 3, num_choices=1, rules=banned))
    assert kept.tokens == greedy(model, ids, 1)


def test_every_position_of_a_proposal_sees_the_drafts_before_it() -> None:
    """A repeated id is fined; what is drafted counts as emitted, what is prompted does not."""
    model = TokenListModel(vocab_size=5)
    fined = SamplingRules(replace(GREEDY.params, presence_penalty=2.0), prompt_len=3)
    ids: tuple[int, ...] = (1, 2, 3)
    for _ in range(6):
        z = model.logits(ids)
        z[list(set(ids[3:]))] -= 2.0
        ids = (*ids, int(z.argmax()))
    (drafted,) = run(
        Replica(model, Role.DRAFT), row(ids[:4], 0, num_choices=4, rules=fined), role=Role.DRAFT
    )
    assert drafted.tokens == ids[4:8]
    (checked,) = run(
        Replica(model, Role.TARGET),
        row(ids[:4], 0, proposal=drafted.tokens, num_choices=5, rules=fined),
    )
    assert checked.tokens == ids[4:9]
    assert checked.num_accepted == 4


def test_what_stands_before_an_impossible_choice_is_committed() -> None:
    """Plain decoding emits it, and fails at the next token alone."""
    model = TokenListModel(vocab_size=5)
    a, b = 0, 1
    bad_words = ((a, a), (a, b), (b, b))
    rules = SamplingRules(
        replace(GREEDY.params, allowed_token_ids=(a, b), bad_words=bad_words), prompt_len=2
    )
    replica = Replica(model, Role.TARGET)
    (first,) = run(replica, row((3, 4, b), 0, proposal=(a, a, a), num_choices=4, rules=rules))
    assert (first.status, first.tokens, first.num_accepted) == (RowStatus.OK, (a,), 0)
    assert first.cached_len == 3
    (second,) = run(replica, row((3, 4, b, a), 3, proposal=(a,), num_choices=2))
    assert second.status is RowStatus.INVALID
    assert "ban every token" in second.error
    assert model.num_slots == 0


def test_logprobs_are_reported_for_what_is_committed() -> None:
    model = TokenListModel()
    asked = SamplingRules(replace(GREEDY.params, num_logprobs=2), prompt_len=3)
    a, b, c = greedy(model, (1, 2, 3), 3)
    wrong = (c + 1) % model.vocab_size
    with_logprobs, without = run(
        Replica(model, Role.TARGET),
        row((1, 2, 3), 0, sequence_id=1, proposal=(a, b, wrong), num_choices=4, rules=asked),
        row((1, 2, 3), 0, sequence_id=2, proposal=(a, b, wrong), num_choices=4, rules=GREEDY),
    )
    assert with_logprobs.tokens == without.tokens == (a, b, c)
    assert without.logprobs == ()
    for j, entry in enumerate(with_logprobs.logprobs):
        expected = model.logits((1, 2, 3, a, b)[: 3 + j]).log_softmax(dim=-1)
        best = expected.topk(2)
        assert entry.logprob == float(expected.max())
        assert entry.top == tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    assert len(with_logprobs.logprobs) == 3
