"""A replica whose KV is the list of ids itself, and whose next token is a hash of all of them.

A wrong rollback, a skipped catch-up or a stale slot becomes a wrong token at once. It counts its
blocks by itself and fails the test when the pool sends more than fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import (
    EMPTY_HASH,
    GroupLease,
    GroupResult,
    LeaseRow,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
    extend_hash,
)
from specdec_core.request import FinishReason, Request, cut_at_stop
from specdec_core.sampling_params import SamplingParams

VOCAB_SIZE = 5
_STEP = 16


def hash_of(ids: Sequence[int]) -> int:
    """Of all of them; what sequences begin with is hashed once."""
    num_begun = len(ids) // _STEP * _STEP
    return extend_hash(_hash_of_steps(tuple(ids[:num_begun])), ids[num_begun:])


@lru_cache(maxsize=1 << 14)
def _hash_of_steps(ids: tuple[int, ...]) -> int:
    return extend_hash(_hash_of_steps(ids[:-_STEP]), ids[-_STEP:]) if ids else EMPTY_HASH


def next_token(ids: Sequence[int], params: SamplingParams, vocab_size: int = VOCAB_SIZE) -> int:
    """The token function: depends on every id before, and on the request's seed."""
    return (extend_hash(hash_of(ids), (params.seed,)) >> 16) % vocab_size


def logprobs_of(ids: Sequence[int], params: SamplingParams) -> TokenLogprobs:
    """What is reported of the token behind `ids`: other numbers behind other ids."""
    value = -float(hash_of(ids) % 1000)
    return TokenLogprobs(value, tuple((i, value - i) for i in range(params.num_logprobs or 0)))


def score_of(ids: Sequence[int], params: SamplingParams) -> TokenLogprobs:
    """What is reported of the last of `ids`, a token of the prompt."""
    value = -float(extend_hash(hash_of(ids), (1,)) % 1000)
    count = params.num_prompt_logprobs or 0
    return TokenLogprobs(value, tuple((i, value - i) for i in range(count)))


def plain_scores(request: Request) -> tuple[TokenLogprobs, ...]:
    """What an attempt that has emitted nothing is told of the prompt: the oracle."""
    params, ids = request.params, request.prompt_token_ids
    if params.num_prompt_logprobs is None or request.emitted_token_ids:
        return ()
    return tuple(score_of(ids[:end], params) for end in range(2, len(ids) + 1))


def plain_ids(request: Request) -> tuple[tuple[int, ...], FinishReason]:
    """What plain decoding of the request emits, and why it ends: the oracle."""
    emitted: tuple[int, ...] = ()
    while True:
        token = next_token((*request.prompt_token_ids, *emitted), request.params)
        budget = request.params.max_tokens - len(emitted)
        tokens, reason = cut_at_stop((token,), request.stop_ids, budget)
        emitted += tokens
        if reason is not None:
            return emitted, reason


def info(
    replica_id: str = "target",
    role: Role = Role.TARGET,
    *,
    incarnation: int = 1,
    num_blocks: int = 1000,
    block_size: int = 4,
    max_model_len: int = 1000,
    vocab_size: int = VOCAB_SIZE,
    model_digest: str = "m",
    device: str = "",
    keeps_prefixes: bool = False,
) -> ReplicaInfo:
    return ReplicaInfo(
        replica_id=replica_id,
        role=role,
        incarnation=incarnation,
        num_blocks=num_blocks,
        kv_cache_spec=FullAttentionSpec(block_size),
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        model_digest=model_digest,
        device=device,
        keeps_prefixes=keeps_prefixes,
    )


@dataclass
class Slot:
    params: SamplingParams
    ids: list[int] = field(default_factory=list)


class FakeReplica:
    """Runs leases of either role. A draft guesses right `agreement` times out of 100."""

    def __init__(self, info: ReplicaInfo, agreement: int = 60) -> None:
        self.info = info
        self.agreement = agreement
        self.slots: dict[int, Slot] = {}
        self.executed: list[GroupLease] = []

    @property
    def num_used_blocks(self) -> int:
        return sum(self._blocks(len(slot.ids)) for slot in self.slots.values())

    def free(self, sequence_ids: Iterable[int]) -> None:
        for sequence_id in sequence_ids:
            self.slots.pop(sequence_id, None)

    def reset(self) -> None:
        self.slots.clear()

    def execute(self, lease: GroupLease) -> GroupResult:
        assert lease.role is self.info.role
        assert lease.replica_id == self.info.replica_id
        assert lease.rows, "an empty lease"
        assert len({row.sequence_id for row in lease.rows}) == len(lease.rows)
        self.executed.append(lease)
        answers: dict[int, RowResult] = {}
        for row in lease.rows:
            miss = self._truncate(row)
            if miss is None:
                self.slots[row.sequence_id].ids += (*row.new_ids, *self._drafted(row))
                self._check_room()
            else:
                answers[row.sequence_id] = miss
        for row in lease.rows:
            if row.sequence_id not in answers:
                answers[row.sequence_id] = self._answer(row)
        return GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(answers[row.sequence_id] for row in lease.rows),
            seconds=0.001,
        )

    def answer_again(self, lease: GroupLease) -> GroupResult:
        """A made-up answer to a lease, for results that must be dropped."""
        rows = tuple(RowResult(sequence_id=row.sequence_id, tokens=(0,)) for row in lease.rows)
        return GroupResult(
            lease_id=lease.lease_id, epoch=lease.epoch, replica_id=lease.replica_id, rows=rows
        )

    def _check_room(self) -> None:
        used, limit = self.num_used_blocks, self.info.num_blocks
        assert used <= limit, f"{used} blocks of {limit}: the pool has not counted as we do"
        longest = max(len(slot.ids) for slot in self.slots.values())
        assert longest <= self.info.max_model_len

    def _blocks(self, length: int) -> int:
        return self.info.kv_cache_spec.blocks_for(length)

    def _truncate(self, row: LeaseRow) -> RowResult | None:
        slot = self.slots.get(row.sequence_id)
        if slot is None and row.base_len == 0 and row.rules is not None:
            slot = self.slots[row.sequence_id] = Slot(row.rules.params)
        if slot is None:
            return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS)
        if len(slot.ids) < row.base_len:
            return _miss(row, len(slot.ids))
        if hash_of(slot.ids[: row.base_len]) != row.base_hash:
            return _miss(row, 0)
        del slot.ids[row.base_len :]
        return None

    def _drafted(self, row: LeaseRow) -> tuple[int, ...]:
        """What the pass caches behind the committed ids."""
        if self.info.role is Role.TARGET:
            return row.proposal
        return self._guess(row)[: max(row.num_choices - 1, 0)]

    def _guess(self, row: LeaseRow) -> tuple[int, ...]:
        slot = self.slots[row.sequence_id]
        ids = [*slot.ids[: row.base_len], *row.new_ids]
        for _ in range(row.num_choices):
            truth = next_token(ids, slot.params, self.info.vocab_size)
            is_right = extend_hash(7, ids) % 100 < self.agreement
            ids.append(truth if is_right else (truth + 1) % self.info.vocab_size)
        return tuple(ids[row.end_len :])

    def _answer(self, row: LeaseRow) -> RowResult:
        slot = self.slots[row.sequence_id]
        if self.info.role is Role.DRAFT:
            tokens = self._guess(row)
            return RowResult(sequence_id=row.sequence_id, cached_len=len(slot.ids), tokens=tokens)
        assert row.num_choices in (0, len(row.proposal) + 1)
        assert 0 <= row.num_scored < len(row.new_ids)
        first = row.base_len + 2
        ends = range(first, first + row.num_scored)
        scores = tuple(score_of(slot.ids[:end], slot.params) for end in ends)
        if row.num_choices == 0:
            return RowResult(
                sequence_id=row.sequence_id, cached_len=len(slot.ids), prompt_logprobs=scores
            )
        return self._verify(row, slot)._replace(prompt_logprobs=scores)

    def _verify(self, row: LeaseRow, slot: Slot) -> RowResult:
        accepted = 0
        logprobs: list[TokenLogprobs] = []
        while True:
            prefix = slot.ids[: row.end_len + accepted]
            token = next_token(prefix, slot.params, self.info.vocab_size)
            if slot.params.num_logprobs is not None:
                logprobs.append(logprobs_of(prefix, slot.params))
            if accepted == len(row.proposal) or row.proposal[accepted] != token:
                break
            accepted += 1
        del slot.ids[row.end_len + accepted :]
        return RowResult(
            sequence_id=row.sequence_id,
            cached_len=len(slot.ids),
            tokens=(*row.proposal[:accepted], token),
            num_accepted=accepted,
            logprobs=tuple(logprobs),
        )


def _miss(row: LeaseRow, have: int) -> RowResult:
    return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS, cached_len=have)
