"""A lease runner without torch: its KV cache is the token list, its choice a hash of all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from specdec_core.config import Numerics
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import (
    EMPTY_HASH,
    GroupLease,
    GroupResult,
    LeaseRow,
    Occupancy,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
    extend_hash,
)
from specdec_core.sampling_params import SamplingRules

VOCAB_SIZE = 50


def next_token(ids: Sequence[int]) -> int:
    """The one right continuation of `ids`."""
    return extend_hash(EMPTY_HASH, ids) % VOCAB_SIZE


def continuation(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What plain decoding emits."""
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(next_token(ids))
    return ids[len(prompt) :]


def logprobs_at(ids: Sequence[int], count: int) -> TokenLogprobs:
    """What is reported of the token behind `ids`. Names its place, and survives float32."""
    return _entry(ids, next_token(ids), count)


def _entry(ids: Sequence[int], token: int, count: int) -> TokenLogprobs:
    logprob = -len(ids) - token / 64
    top = (((token + j) % VOCAB_SIZE, logprob - j / 32) for j in range(count))
    return TokenLogprobs(logprob, tuple(top))


def expected_prompt_logprobs(prompt: Sequence[int], count: int) -> list[TokenLogprobs]:
    """Of every token but the first."""
    return [_entry(prompt[:place], prompt[place], count) for place in range(1, len(prompt))]


def expected_logprobs(prompt: Sequence[int], num_tokens: int, count: int) -> list[TokenLogprobs]:
    """What plain decoding reports."""
    ids = [*prompt, *continuation(prompt, num_tokens)]
    return [logprobs_at(ids[:end], count) for end in range(len(prompt), len(ids))]


class FakeReplica:
    """Behaves as worker.replica.Replica does; a draft errs behind every third length."""

    def __init__(
        self,
        role: Role,
        *,
        numerics: Numerics = Numerics.FAST,
        fingerprint: str = "fake",
        num_matched: int = 0,
    ) -> None:
        """`num_matched`: what it says that its prefix cache had of each prompt."""
        self._role = role
        self._num_found = num_matched
        self._numerics = numerics
        self._fingerprint = fingerprint
        self.cached: dict[int, list[int]] = {}
        self.rules_seen: list[SamplingRules] = []
        self._rules: dict[int, SamplingRules] = {}
        self.num_leases = 0

    @property
    def num_slots(self) -> int:
        return len(self.cached)

    @property
    def occupancy(self) -> Occupancy:
        """As if every prompt were found by half."""
        num_queries = sum(rules.prompt_len for rules in self.rules_seen)
        return Occupancy(
            num_slots=len(self.cached),
            num_free_blocks=1000 - sum(-(-len(ids) // 4) for ids in self.cached.values()),
            num_prefix_queries=num_queries,
            num_prefix_hits=num_queries // 2,
        )

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return ReplicaInfo(
            replica_id=replica_id,
            role=self._role,
            incarnation=incarnation,
            num_blocks=1000,
            kv_cache_spec=FullAttentionSpec(4),
            max_model_len=512,
            vocab_size=VOCAB_SIZE,
            model_digest=f"fake-{self._role}",
            fingerprint=self._fingerprint,
            numerics=self._numerics,
        )

    def free(self, sequence_ids: Iterable[int]) -> None:
        for sequence_id in sequence_ids:
            self.cached.pop(sequence_id, None)
            self._rules.pop(sequence_id, None)

    def reset(self) -> None:
        self.cached.clear()
        self._rules.clear()

    def execute(self, lease: GroupLease) -> GroupResult:
        self.num_leases += 1
        return GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(self._run(row) for row in lease.rows),
            seconds=0.001,
        )

    def _run(self, row: LeaseRow) -> RowResult:
        if row.sequence_id not in self.cached and row.base_len == 0:
            self.cached[row.sequence_id] = []
        if row.rules is not None:
            self._rules[row.sequence_id] = row.rules
            self.rules_seen.append(row.rules)
        ids = self.cached.get(row.sequence_id)
        if ids is None or len(ids) < row.base_len:
            have = len(ids or ())
            return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS, cached_len=have)
        del ids[row.base_len :]
        if extend_hash(EMPTY_HASH, ids) != row.base_hash:
            return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS)
        ids += row.new_ids
        if self._role is Role.TARGET:
            return self._verify(row, ids)
        return self._draft(row, ids)

    def _verify(self, row: LeaseRow, ids: list[int]) -> RowResult:
        count = self._rules[row.sequence_id].params.num_prompt_logprobs or 0
        scores = tuple(expected_prompt_logprobs(ids, count)[row.base_len :][: row.num_scored])
        if row.num_choices == 0:
            return RowResult(
                sequence_id=row.sequence_id, cached_len=len(ids), prompt_logprobs=scores
            )
        start, accepted = len(ids), 0
        while accepted < len(row.proposal) and row.proposal[accepted] == next_token(ids):
            ids.append(row.proposal[accepted])
            accepted += 1
        return RowResult(
            sequence_id=row.sequence_id,
            cached_len=len(ids),
            tokens=(*row.proposal[:accepted], next_token(ids)),
            num_accepted=accepted,
            logprobs=tuple(self._logprobs(row.sequence_id, ids, start)),
            prompt_logprobs=scores,
            num_matched=min(self._num_found, len(row.new_ids)) if row.base_len == 0 else 0,
        )

    def _logprobs(
        self, sequence_id: int, ids: Sequence[int], start: int
    ) -> Iterator[TokenLogprobs]:
        count = self._rules[sequence_id].params.num_logprobs
        if count is not None:
            yield from (logprobs_at(ids[:end], count) for end in range(start, len(ids) + 1))

    def _draft(self, row: LeaseRow, ids: list[int]) -> RowResult:
        proposal: list[int] = []
        for _ in range(row.num_choices):
            seen = [*ids, *proposal]
            proposal.append((next_token(seen) + (len(seen) % 3 == 0)) % VOCAB_SIZE)
        ids += proposal[:-1]
        return RowResult(sequence_id=row.sequence_id, cached_len=len(ids), tokens=tuple(proposal))
