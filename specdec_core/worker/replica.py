"""A replica: runs leases over one model and owns what the model caches.

It allocates slots itself, in lease order, and knows for each the IDs that its KV came from. It
never decides which tokens are committed. It answers, and the scheduler commits. All its state can
be rebuilt from IDs. Only the replica tracks shared prefixes; the scheduler counts blocks without
sharing.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specdec_core.errors import InvalidRequestError, OutOfBlocksError
from specdec_core.grammar import GrammarCompiler
from specdec_core.messages import (
    EMPTY_HASH,
    OK,
    TARGET,
    GroupLease,
    GroupResult,
    LeaseRow,
    Occupancy,
    Role,
    RowResult,
    RowStatus,
    hashes_behind,
)
from specdec_core.model import CachedModel
from specdec_core.sampling.logit_processors import bans_every_id
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling_params import SamplingRules
from specdec_core.worker.round import RoundInput, propose, score_and_verify
from specdec_core.worker.verification import Verdict

_GRAMMAR_WAIT_S = 0.004
"""Seconds that a pass waits for the grammars of its rows, while other rows could run."""
_GRAMMAR_WAIT_ALONE_S = 0.02
"""As `_GRAMMAR_WAIT_S`, if no other row could run."""


@dataclass(eq=False, slots=True)
class _CachedSequence:
    """One slot, and the IDs that its KV came from."""

    slot: int
    rules: SamplingRules
    ids: array[int] = field(default_factory=lambda: array("i"))
    prefix_hashes: array[int] = field(default_factory=lambda: array("Q", [EMPTY_HASH]))
    """prefix_hashes[i] is the hash of ids[:i]."""
    num_matched: int = 0
    """Prompt tokens of the last row that were found in the prefix cache."""

    def truncate(self, length: int) -> None:
        del self.ids[length:]
        del self.prefix_hashes[length + 1 :]

    def extend(self, token_ids: Sequence[int]) -> None:
        self.ids.extend(token_ids)
        self.prefix_hashes.extend(hashes_behind(self.prefix_hashes[-1], token_ids))


_ReadyRow = tuple[LeaseRow, _CachedSequence]
"""A row and its sequence, truncated to base_len, with room for the tokens that it feeds."""


class Replica:
    """Executes leases of one role over one model. Not thread-safe; one caller, in stream order."""

    def __init__(
        self, model: CachedModel, role: Role, grammars: GrammarCompiler | None = None
    ) -> None:
        self._model = model
        self._block_size = model.kv_cache_spec.block_size
        self._blocks_for = model.kv_cache_spec.blocks_for
        self._cache = model.prefix_cache
        if self._cache is not None:
            self._cache.evict_all()  # a replica starts empty, even if another one used the model
        self._role = role
        self._grammars = grammars
        self._sequences: dict[int, _CachedSequence] = {}
        self._num_prefix_queries = 0
        self._num_prefix_hits = 0

    @property
    def num_slots(self) -> int:
        return len(self._sequences)

    @property
    def occupancy(self) -> Occupancy:
        return Occupancy(
            num_slots=self.num_slots,
            num_free_blocks=self._model.num_free_blocks,
            num_prefix_queries=self._num_prefix_queries,
            num_prefix_hits=self._num_prefix_hits,
            recording_s=self._model.recording_s,
        )

    def free(self, sequence_ids: Iterable[int]) -> None:
        """Forget sequences. Unknown IDs are ignored, because the lease that named them may have
        missed."""
        for sequence_id in sequence_ids:
            cached = self._sequences.pop(sequence_id, None)
            if cached is not None:
                self._model.free(cached.slot)

    def reset(self) -> None:
        """Forget every sequence. The prefix cache still finds their computed blocks by their
        IDs."""
        self.free(list(self._sequences))

    def execute(self, lease: GroupLease) -> GroupResult:
        """Run in one pass all rows that can run, and return an answer for every row, in order."""
        assert lease.role is self._role, f"a {lease.role} lease reached a {self._role} replica"
        started, recording_s = time.perf_counter(), self._model.recording_s
        truncated = [self._truncated(row) for row in lease.rows]
        answers: dict[int, RowResult] = {}
        ready: list[_ReadyRow] = []
        num_free = self._model.num_free_blocks
        is_target, blocks_for = self._role is TARGET, self._blocks_for
        for row, cached in self._prepared(lease.rows, truncated):
            if isinstance(cached, RowResult):
                answers[row.sequence_id] = cached
                continue
            num_drafted = len(row.proposal) if is_target else max(row.num_choices - 1, 0)
            base_len = row.base_len
            num_new = blocks_for(base_len + len(row.new_ids) + num_drafted) - blocks_for(base_len)
            if num_new > num_free:
                answers[row.sequence_id] = _no_room(row, len(cached.ids))
            else:
                ready.append((row, cached))
                num_free -= num_new
        if ready:
            answers |= self._run(ready, lease.min_confidence)
        return GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(answers[row.sequence_id] for row in lease.rows),
            seconds=time.perf_counter() - started,
            recording_s=self._model.recording_s - recording_s,
        )

    def _truncated(self, row: LeaseRow) -> _CachedSequence | RowResult:
        """Return the row's sequence, rolled back to base_len. This is the only place that rolls
        back before a pass. Return a KV_MISS if the slot lacks those IDs."""
        cached = self._sequences.get(row.sequence_id) or self._begun(row)
        if isinstance(cached, RowResult):
            return cached
        base_len, cached_len = row.base_len, len(cached.ids)
        if cached_len < base_len:
            return _miss(row, cached_len)
        if cached.prefix_hashes[base_len] != row.base_hash:
            return _miss(row, 0)
        if cached_len == base_len:
            return cached  # nearly always: a verified row was rolled back in its own pass
        try:
            self._model.rollback(cached.slot, base_len)
        except OutOfBlocksError:
            return _no_room(row, cached_len)
        cached.truncate(base_len)
        return cached

    def _begun(self, row: LeaseRow) -> _CachedSequence | RowResult:
        """Allocate a slot for a sequence that has none."""
        if row.base_len > 0 or row.rules is None:
            return _miss(row, 0)
        try:
            rules = row.rules.compiled(self._grammars)
        except InvalidRequestError as error:
            return _failure(row, str(error), RowStatus.INVALID)
        cached = self._sequences[row.sequence_id] = _CachedSequence(self._model.allocate(), rules)
        return cached

    def _prepared(
        self, rows: Sequence[LeaseRow], truncated: list[_CachedSequence | RowResult]
    ) -> Iterable[tuple[LeaseRow, _CachedSequence | RowResult]]:
        """Return the rows, with NOT_READY for each row whose grammar is not computed for its next
        token.

        A draft proposes nothing for such a row. If the grammar is not ready at a later position,
        the proposal ends there.
        """
        if self._role is TARGET:
            waiting = [
                index
                for index, (row, cached) in enumerate(zip(rows, truncated, strict=True))
                if not _is_prepared(row, cached, 0.0)
            ]
            wait_s = _GRAMMAR_WAIT_S if len(waiting) < len(rows) else _GRAMMAR_WAIT_ALONE_S
            deadline = time.perf_counter() + wait_s
            for index in waiting:
                left_s = max(deadline - time.perf_counter(), 0.0)
                if not _is_prepared(rows[index], truncated[index], left_s):
                    truncated[index] = _not_ready(rows[index])
        return zip(rows, truncated, strict=True)

    def _run(self, rows: list[_ReadyRow], min_confidence: float) -> dict[int, RowResult]:
        """Run the rows and wait even if none samples a token. The scheduler sends the next part of
        a prompt when this one is done, and `seconds` must be those of this lease."""
        answers = self._pass(rows, min_confidence)
        if not any([row.num_choices for row, _ in rows]):
            self._model.wait()
        return answers

    def _pass(self, rows: list[_ReadyRow], min_confidence: float) -> dict[int, RowResult]:
        inputs = [self._input(row, cached) for row, cached in rows]
        if self._role is TARGET:
            verdicts = score_and_verify(self._model, inputs)
            return {
                row.sequence_id: self._verified(row, cached, verdict)
                for (row, cached), verdict in zip(rows, verdicts, strict=True)
            }
        proposals = propose(self._model, inputs, min_confidence)
        return {
            row.sequence_id: self._drafted(row, cached, tokens)
            for (row, cached), tokens in zip(rows, proposals, strict=True)
        }

    def _input(self, row: LeaseRow, cached: _CachedSequence) -> RoundInput:
        if self._cache is not None:
            self._match_prefix(row, cached)
            self._count(row, cached)
        fed, rules = row.fed_behind(len(cached.ids)), cached.rules
        history = (*cached.ids, *fed) if rules.needs_history else ()
        return RoundInput(
            cached.slot, fed, row.proposal, row.num_choices, rules, history, row.num_scored
        )

    def _match_prefix(self, row: LeaseRow, cached: _CachedSequence) -> None:
        """Reuse whole blocks that other sequences cached for the row's new IDs.

        A row that samples still feeds its last token, because cached blocks hold no logits. A row
        that scores its prompt needs the logits of all tokens.
        """
        assert self._cache is not None
        if row.num_scored:
            return
        end = row.end_len - (row.num_choices > 0)
        size = self._block_size
        if end // size == len(cached.ids) // size:
            return
        ids = cached.ids + array("i", row.new_ids[: end - row.base_len])
        cached_len = self._cache.match_prefix(cached.slot, ids, cached.rules.cache_salt)
        cached.extend(ids[len(cached.ids) : cached_len])

    def _count(self, row: LeaseRow, cached: _CachedSequence) -> None:
        """Count the prompt tokens of the row, and those found in the prefix cache."""
        prompt_len, base_len = cached.rules.prompt_len, row.base_len
        if base_len >= prompt_len:
            cached.num_matched = 0
            return
        self._num_prefix_queries += min(row.end_len, prompt_len) - base_len
        cached.num_matched = min(len(cached.ids), prompt_len) - base_len
        self._num_prefix_hits += cached.num_matched

    def _verified(self, row: LeaseRow, cached: _CachedSequence, verdict: Verdict) -> RowResult:
        num_accepted, tokens, logprobs, prompt_logprobs = verdict
        if tokens == (NO_CHOICE,):
            return self._failed(row, cached)
        cached_len = self._keep(row, cached, tokens[:num_accepted])
        size = self._block_size
        if cached_len // size > row.base_len // size:  # the others are published
            self._publish(cached, cached_len)
        return RowResult(
            row.sequence_id,
            OK,
            cached_len,
            tokens,
            num_accepted,
            logprobs,
            prompt_logprobs,
            num_matched=cached.num_matched,
        )

    def _drafted(
        self, row: LeaseRow, cached: _CachedSequence, tokens: tuple[int, ...]
    ) -> RowResult:
        cached_len = self._keep(row, cached, tokens[: max(row.num_choices - 1, 0)])
        self._publish(cached, row.end_len)  # most drafted tokens are soon rolled back
        return RowResult(row.sequence_id, OK, cached_len, tokens)

    def _keep(self, row: LeaseRow, cached: _CachedSequence, drafted: tuple[int, ...]) -> int:
        """Record the IDs whose KV the pass has left in the slot; return their number."""
        fed = row.fed_behind(len(cached.ids))
        cached.extend(fed + drafted if drafted else fed)
        cached_len = len(cached.ids)
        assert cached_len == self._model.cached_len(cached.slot), "ids and KV disagree"
        return cached_len

    def _publish(self, cached: _CachedSequence, length: int) -> None:
        if self._cache is not None:
            self._cache.publish(cached.slot, cached.ids[:length], cached.rules.cache_salt)

    def _failed(self, row: LeaseRow, cached: _CachedSequence) -> RowResult:
        why = cached.rules.failure
        history = (*cached.ids, *row.fed_behind(len(cached.ids)))
        if why is None and bans_every_id(cached.rules, history, self._model.vocab_size):
            why = _NO_ID_LEFT
        if self._cache is not None and why is None:
            self._cache.evict(cached.slot)  # a NaN would fail all with this prefix
        self.free([row.sequence_id])
        if why is not None:
            return _failure(row, why, RowStatus.INVALID)
        return _failure(row, "no token can be chosen, because every logit is -inf or NaN")


_NO_ID_LEFT = (
    "allowed_token_ids, bad_words, min_tokens and structured output together ban every token: "
    "relax one of them"
)


def _is_prepared(row: LeaseRow, cached: _CachedSequence | RowResult, timeout_s: float) -> bool:
    """Return True if the row's next token can be chosen. Wait for it at most `timeout_s`."""
    if not row.num_choices or isinstance(cached, RowResult) or cached.rules.grammar is None:
        return True
    ids = (*cached.ids, *row.new_ids)
    return cached.rules.grammar.prepare(ids[cached.rules.prompt_len :], timeout_s)


def _not_ready(row: LeaseRow) -> RowResult:
    return RowResult(row.sequence_id, RowStatus.NOT_READY)


def _failure(row: LeaseRow, error: str, status: RowStatus = RowStatus.FAILED) -> RowResult:
    return RowResult(sequence_id=row.sequence_id, status=status, error=error)


def _no_room(row: LeaseRow, have: int) -> RowResult:
    return RowResult(sequence_id=row.sequence_id, status=RowStatus.NO_ROOM, cached_len=have)


def _miss(row: LeaseRow, have: int) -> RowResult:
    return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS, cached_len=have)
