"""The modelled replica answers as the real one does, whatever it is leased."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
import torch
from torch import Tensor

from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.tokens import guess, next_token, salt_of
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import (
    EMPTY_HASH,
    GroupLease,
    GroupResult,
    LeaseRow,
    ReplicaInfo,
    Role,
    RowStatus,
    extend_hash,
)
from specdec_core.sampling_params import SamplingParams, SamplingRules
from specdec_core.worker.replica import Replica
from tests.fakes import TokenListModel

VOCAB_SIZE = 7
SEED = 3
SALT = salt_of(SEED, "bits")
AGREEMENT = 0.6


class HashModel(TokenListModel):
    """Its most probable token is the token function's, or what a draft guesses of it."""

    def __init__(self, role: Role, num_blocks: int, block_size: int) -> None:
        super().__init__(vocab_size=VOCAB_SIZE, num_blocks=num_blocks, block_size=block_size)
        self._role = role

    def logits(self, ids: Sequence[int]) -> Tensor:
        prefix = extend_hash(EMPTY_HASH, ids)
        if self._role is Role.TARGET:
            token = next_token(prefix, SALT, VOCAB_SIZE)
        else:
            token = guess(prefix, SALT, VOCAB_SIZE, AGREEMENT)
        return torch.nn.functional.one_hot(torch.tensor(token), VOCAB_SIZE).float()


def random_row(random: Random, role: Role, sequence_id: int, ids: list[int]) -> LeaseRow:
    """Mostly what a pool would send, sometimes with a prefix that nobody has."""
    base_len = random.choice((0, random.randint(0, len(ids) - 1)))
    end_len = random.choice((len(ids), random.randint(base_len + 1, len(ids))))
    proposal: tuple[int, ...] = ()
    num_choices = random.randint(0, 4) if role is Role.DRAFT else 0
    if role is Role.TARGET and random.random() < 0.8:
        prefix, tokens = extend_hash(EMPTY_HASH, ids[:end_len]), []
        for _ in range(random.randint(0, 3)):
            tokens.append(guess(prefix, SALT, VOCAB_SIZE, AGREEMENT))
            prefix = extend_hash(prefix, tokens[-1:])
        proposal, num_choices = tuple(tokens), len(tokens) + 1
    is_wrong = random.random() < 0.05
    params = SamplingParams(temperature=0.0, seed=SEED)
    return LeaseRow(
        sequence_id=sequence_id,
        base_len=base_len,
        base_hash=extend_hash(EMPTY_HASH, ids[:base_len]) ^ is_wrong,
        new_ids=tuple(ids[base_len:end_len]),
        proposal=proposal,
        num_choices=num_choices,
        rules=random.choice((None, SamplingRules(params, len(ids)))),
    )


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("num_blocks", [6, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_it_answers_as_the_real_replica_does(role: Role, num_blocks: int, seed: int) -> None:
    random = Random(seed)
    info = ReplicaInfo(
        replica_id="r",
        role=role,
        incarnation=1,
        num_blocks=num_blocks,
        kv_cache_spec=FullAttentionSpec(3),
        max_model_len=4096,
        vocab_size=VOCAB_SIZE,
        model_digest="m",
        fingerprint="bits",
    )
    real = Replica(HashModel(role, num_blocks, 3), role)
    model = ModelReplica(info, AGREEMENT, taught_by="bits")
    texts = {i: [random.randrange(VOCAB_SIZE) for _ in range(9)] for i in range(4)}
    seen: set[RowStatus] = set()
    for lease_id in range(150):
        chosen = random.sample(sorted(texts), random.randint(1, 3))
        rows = tuple(random_row(random, role, i, texts[i]) for i in chosen)
        lease = GroupLease(
            lease_id=lease_id, epoch=1, replica_id="r", role=role, rows=rows, ttl_s=1.0
        )
        expected: GroupResult = real.execute(lease)
        answer = model.execute(lease, 0.0)
        assert answer == expected._replace(seconds=0.0)
        assert model.occupancy == real.occupancy
        seen.update(row.status for row in answer.rows)
        if random.random() < 0.2:
            gone = random.sample(sorted(texts), 2)
            real.free(gone)
            model.free(gone)
    assert {RowStatus.OK, RowStatus.KV_MISS} <= seen
    assert (RowStatus.NO_ROOM in seen) is (num_blocks == 6)


def test_rows_that_wait_for_their_grammar_keep_what_they_have() -> None:
    info = ReplicaInfo(
        replica_id="r",
        role=Role.TARGET,
        incarnation=1,
        num_blocks=100,
        kv_cache_spec=FullAttentionSpec(3),
        max_model_len=4096,
        vocab_size=VOCAB_SIZE,
        model_digest="m",
        fingerprint="bits",
    )
    model = ModelReplica(info, AGREEMENT, taught_by="bits", not_ready=0.5)
    rules = SamplingRules(SamplingParams(temperature=0.0, seed=SEED), 3)
    row = LeaseRow(1, 0, EMPTY_HASH, (1, 2, 3), rules=rules)
    read = model.execute(GroupLease(0, 1, "r", Role.TARGET, (row,), 1.0), 0.0)
    assert [answer.status for answer in read.rows] == [RowStatus.OK]
    base_hash = extend_hash(EMPTY_HASH, (1, 2, 3))
    asked = LeaseRow(1, 3, base_hash, (4,), num_choices=1)
    statuses = []
    for lease_id in range(1, 200):
        lease = GroupLease(lease_id, 1, "r", Role.TARGET, (asked,), 1.0)
        (answer,) = model.execute(lease, 0.0).rows
        statuses.append(answer.status)
        assert model.slots[1].cached_len == (4 if answer.status is RowStatus.OK else 3)
    assert 60 < statuses.count(RowStatus.NOT_READY) < 140
    assert set(statuses) == {RowStatus.OK, RowStatus.NOT_READY}
