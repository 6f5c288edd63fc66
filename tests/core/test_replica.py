"""A replica's promises: what it caches comes from the ids it was told, and it says so."""

from __future__ import annotations

from specdec_core import SamplingParams
from specdec_core.leases import (
    EMPTY_HASH,
    GroupLease,
    LeaseRow,
    Role,
    RowResult,
    RowStatus,
    extend_hash,
)
from specdec_core.replica import Replica
from tests.fakes import TokenListModel

GREEDY = SamplingParams(temperature=0.0, max_tokens=100)


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


def run(replica: Replica, *rows: LeaseRow, role: Role = Role.TARGET) -> tuple[RowResult, ...]:
    lease = GroupLease(lease_id=1, epoch=7, replica_id="r", role=role, rows=rows, ttl_s=1.0)
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
        row(prompt, 0, proposal=proposal, num_choices=4, params=GREEDY),
    )
    assert result.tokens == (a, b, c)
    assert result.num_accepted == 2
    assert result.cached_len == len(prompt) + 2


def test_the_next_round_continues_behind_the_accepted_prefix() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    (first,) = run(replica, row((1, 2, 3), 0, num_choices=1, params=GREEDY))
    ids = (1, 2, 3, *first.tokens)
    (second,) = run(replica, row(ids, first.cached_len, num_choices=1))
    assert second.tokens == greedy(model, ids, 1)


def test_a_chunk_commits_nothing_and_is_cached() -> None:
    replica = Replica(TokenListModel(), Role.TARGET)
    (result,) = run(replica, row((1, 2, 3, 4), 0, params=GREEDY))
    assert (result.tokens, result.cached_len) == ((), 4)


def test_an_unknown_sequence_is_a_miss_for_that_row_alone() -> None:
    model = TokenListModel()
    missing, fine = run(
        Replica(model, Role.TARGET),
        row((1, 2, 3), 2, sequence_id=1, num_choices=1),
        row((4, 5), 0, sequence_id=2, num_choices=1, params=GREEDY),
    )
    assert (missing.status, missing.cached_len) == (RowStatus.KV_MISS, 0)
    assert fine.tokens == greedy(model, (4, 5), 1)


def test_a_base_beyond_the_cache_is_a_miss_that_says_what_is_there() -> None:
    replica = Replica(TokenListModel(), Role.TARGET)
    run(replica, row((1, 2), 0, params=GREEDY))
    (result,) = run(replica, row((1, 2, 3, 4), 3, num_choices=1))
    assert (result.status, result.cached_len) == (RowStatus.KV_MISS, 2)


def test_other_ids_at_the_same_length_are_a_miss() -> None:
    replica = Replica(TokenListModel(), Role.TARGET)
    run(replica, row((1, 2), 0, params=GREEDY))
    (result,) = run(replica, row((1, 9, 3), 2, num_choices=1))
    assert (result.status, result.cached_len) == (RowStatus.KV_MISS, 0)


def test_truncation_to_base_len_is_the_rollback() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    run(replica, row((1, 2, 3, 4), 0, params=GREEDY))
    (result,) = run(replica, row((1, 2, 9), 2, num_choices=1))
    assert result.tokens == greedy(model, (1, 2, 9), 1)


def test_a_draft_caches_all_drafted_tokens_but_the_last() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.DRAFT)
    (result,) = run(replica, row((1, 2), 0, num_choices=3, params=GREEDY), role=Role.DRAFT)
    assert result.tokens == greedy(model, (1, 2), 3)
    assert result.cached_len == 4


def test_drafts_of_different_lengths_share_a_lease() -> None:
    model = TokenListModel()
    results = run(
        Replica(model, Role.DRAFT),
        row((1, 2), 0, sequence_id=1, num_choices=3, params=GREEDY),
        row((5,), 0, sequence_id=2, num_choices=1, params=GREEDY),
        row((7, 8), 0, sequence_id=3, params=GREEDY),
        role=Role.DRAFT,
    )
    expected = [greedy(model, (1, 2), 3), greedy(model, (5,), 1), ()]
    assert [result.tokens for result in results] == expected
    assert [result.cached_len for result in results] == [4, 1, 2]


def test_a_row_without_room_is_refused_before_anything_is_fed() -> None:
    model = TokenListModel(num_blocks=2, block_size=4)
    fits, refused = run(
        Replica(model, Role.TARGET),
        row((1,) * 5, 0, sequence_id=1, num_choices=1, params=GREEDY),
        row((2,) * 3, 0, sequence_id=2, num_choices=1, params=GREEDY),
    )
    assert fits.status is RowStatus.OK
    assert (refused.status, refused.cached_len) == (RowStatus.NO_ROOM, 0)
    assert model.num_free_blocks == 0


def test_freeing_and_resetting_give_every_slot_back() -> None:
    model = TokenListModel()
    replica = Replica(model, Role.TARGET)
    run(replica, *[row((i,), 0, sequence_id=i, num_choices=1, params=GREEDY) for i in (1, 2, 3)])
    replica.free([2, 99])
    assert (replica.num_slots, model.num_slots) == (2, 2)
    replica.reset()
    assert (replica.num_slots, model.num_slots) == (0, 0)
    assert model.num_free_blocks == model.num_blocks


def test_a_row_where_nothing_may_be_chosen_fails_alone() -> None:
    class Silent(TokenListModel):
        def logits(self, ids):  # type: ignore[no-untyped-def]
            logits = super().logits(ids)
            return logits.fill_(float("-inf")) if ids[0] == 1 else logits

    failed, fine = run(
        Replica(Silent(), Role.TARGET),
        row((1,), 0, sequence_id=1, num_choices=1, params=GREEDY),
        row((2,), 0, sequence_id=2, num_choices=1, params=GREEDY),
    )
    assert failed.status is RowStatus.FAILED
    assert "no id may be chosen" in failed.error
    assert fine.status is RowStatus.OK
