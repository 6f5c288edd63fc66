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
from functools import partial

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
)
from specdec_core.model import CachedModel
from specdec_core.sampling.logit_processors import bans_every_id
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling_params import SamplingRules
from specdec_core.worker.round import CachedSequence, RoundRow, propose, score_and_verify

_GRAMMAR_WAIT_S = 0.004
"""Seconds that a pass waits for the grammars of its rows, while other rows could run."""
_GRAMMAR_WAIT_ALONE_S = 0.02
"""As `_GRAMMAR_WAIT_S`, if no other row could run."""
_NO_TOKEN = "no token can be chosen, because every logit is -inf or NaN"
_NO_ID_LEFT = (
    "allowed_token_ids, bad_words, min_tokens and structured output together ban every token: "
    "relax one of them"
)


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
        self._sequences: dict[int, CachedSequence] = {}
        self._with_grammar: set[int] = set()
        """IDs of the sequences whose rules have a grammar."""
        self._num_prefix_queries = 0
        self._num_prefix_hits = 0

    @property
    def occupancy(self) -> Occupancy:
        return Occupancy(
            num_slots=len(self._sequences),
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
                self._with_grammar.discard(sequence_id)

    def reset(self) -> None:
        """Forget every sequence. The prefix cache still finds their computed blocks by their
        IDs."""
        self.free(list(self._sequences))

    def execute(self, lease: GroupLease) -> GroupResult:
        """Run in one pass all rows that can run, and return an answer for every row, in order."""
        assert lease.role is self._role, f"a {lease.role} lease reached a {self._role} replica"
        started, recording_s = time.perf_counter(), self._model.recording_s
        is_target, blocks_for = self._role is TARGET, self._blocks_for
        truncated = [self._truncated(row) for row in lease.rows]
        if self._with_grammar and is_target:
            self._await_grammars(lease.rows, truncated)
        answers: dict[int, RowResult] = {}
        ready: list[RoundRow] = []
        num_free = self._model.num_free_blocks
        for row, cached in zip(lease.rows, truncated, strict=True):
            if isinstance(cached, RowResult):
                answers[row.sequence_id] = cached
                continue
            base_len, num_drafted = row.base_len, max(row.num_choices - 1, 0)
            num_new = blocks_for(base_len + len(row.new_ids) + num_drafted) - blocks_for(base_len)
            if num_new > num_free:
                answers[row.sequence_id] = RowResult(row.sequence_id, RowStatus.NO_ROOM, base_len)
                continue
            num_free -= num_new
            ready.append((self._matched(row, cached), cached))
        if ready and is_target:
            self._verify(ready, answers)
        elif ready:
            self._draft(ready, lease.min_confidence, answers)
        if ready and not any([row.num_choices for row, _ in ready]):
            # Wait all the same. The scheduler sends the next part of a prompt when this one is
            # done, and `seconds` must be those of this lease.
            self._model.wait()
        return GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple([answers[row.sequence_id] for row in lease.rows]),
            seconds=time.perf_counter() - started,
            recording_s=self._model.recording_s - recording_s,
        )

    def _truncated(self, row: LeaseRow) -> CachedSequence | RowResult:
        """Return the row's sequence, rolled back to base_len; the only rollback before a pass.
        Return a KV_MISS if the slot lacks those IDs."""
        base_len = row.base_len
        cached = self._sequences.get(row.sequence_id)
        if cached is None:
            if base_len > 0 or row.rules is None:
                return RowResult(row.sequence_id, RowStatus.KV_MISS)
            if row.rules.params.grammar is not None and row.rules.grammar is None:
                return self._begun_with_grammar(row, row.rules)
            empty = array("i"), array("Q", [EMPTY_HASH])
            cached = CachedSequence(self._model.allocate(), row.rules, *empty)
            self._sequences[row.sequence_id] = cached
        if len(cached.ids) == base_len and cached.prefix_hashes[base_len] == row.base_hash:
            return cached  # nearly always: a verified row was rolled back in its own pass
        return self._rolled_back(row, cached)

    def _begun_with_grammar(
        self, row: LeaseRow, rules: SamplingRules
    ) -> CachedSequence | RowResult:
        """Compile the row's grammar and begin its sequence. Return INVALID if that fails."""
        try:
            compiled = rules.compiled(self._grammars)
        except InvalidRequestError as error:
            return RowResult(row.sequence_id, RowStatus.INVALID, error=str(error))
        begun = self._truncated(row._replace(rules=compiled))
        if row.sequence_id in self._sequences:
            self._with_grammar.add(row.sequence_id)
        return begun

    def _rolled_back(self, row: LeaseRow, cached: CachedSequence) -> CachedSequence | RowResult:
        """Forget what the slot caches after base_len. Return KV_MISS if it caches other IDs or
        fewer, and NO_ROOM if no block is free for the copy of a shared one."""
        base_len, cached_len = row.base_len, len(cached.ids)
        if cached_len < base_len:
            return RowResult(row.sequence_id, RowStatus.KV_MISS, cached_len)
        if cached.prefix_hashes[base_len] != row.base_hash:
            return RowResult(row.sequence_id, RowStatus.KV_MISS)
        try:
            self._model.rollback(cached.slot, base_len)
        except OutOfBlocksError:
            return RowResult(row.sequence_id, RowStatus.NO_ROOM, cached_len)
        cached.truncate(base_len)
        return cached

    def _await_grammars(
        self, rows: Sequence[LeaseRow], truncated: list[CachedSequence | RowResult]
    ) -> None:
        """Answer NOT_READY for each row whose grammar is not computed for its next token.

        A draft proposes nothing for such a row. If the grammar is not ready at a later position,
        the proposal ends there.
        """
        waiting: dict[int, partial[bool]] = {}
        for index, (row, cached) in enumerate(zip(rows, truncated, strict=True)):
            if not row.num_choices or isinstance(cached, RowResult):
                continue
            rules = cached.rules
            if rules.grammar is not None:
                output_ids = (*cached.ids, *row.new_ids)[rules.prompt_len :]
                is_prepared = partial(rules.grammar.prepare, output_ids)
                if not is_prepared(0.0):
                    waiting[index] = is_prepared
        wait_s = _GRAMMAR_WAIT_S if len(waiting) < len(rows) else _GRAMMAR_WAIT_ALONE_S
        deadline = time.perf_counter() + wait_s
        for index, is_prepared in waiting.items():
            if not is_prepared(max(deadline - time.perf_counter(), 0.0)):
                truncated[index] = RowResult(rows[index].sequence_id, RowStatus.NOT_READY)

    def _matched(self, row: LeaseRow, cached: CachedSequence) -> LeaseRow:
        """Reuse whole blocks that other sequences cached for the row's new IDs; return the row with
        the IDs that are left to feed. A row that samples still feeds its last token, because cached
        blocks hold no logits. A row that scores its prompt needs the logits of all tokens."""
        base_len, size, prompt_len = row.base_len, self._block_size, cached.rules.prompt_len
        cached.num_matched = 0
        if self._cache is None:
            return row
        end_len = base_len + len(row.new_ids)
        if base_len < prompt_len:
            self._num_prefix_queries += min(end_len, prompt_len) - base_len
        end = end_len - (row.num_choices > 0)
        if end // size == base_len // size or row.num_scored:
            return row
        ids = cached.ids + array("i", row.new_ids[: end - base_len])
        cached_len = self._cache.match_prefix(cached.slot, ids, cached.rules.cache_salt)
        cached.extend(ids[base_len:cached_len])
        cached.num_matched = max(min(cached_len, prompt_len) - base_len, 0)
        self._num_prefix_hits += cached.num_matched
        left = row.new_ids[cached_len - base_len :]
        return row._replace(base_len=cached_len, base_hash=cached.prefix_hashes[-1], new_ids=left)

    def _verify(self, ready: Sequence[RoundRow], answers: dict[int, RowResult]) -> None:
        """Run the rows of a target, and note their answers."""
        size = self._block_size
        for (row, cached), result in zip(ready, score_and_verify(self._model, ready), strict=True):
            if result.tokens == (NO_CHOICE,):
                answers[row.sequence_id] = self._failed(row, cached)
                continue
            cached.extend(row.new_ids + result.tokens[: result.num_accepted])
            cached_len = len(cached.ids)
            assert cached_len == result.cached_len, "ids and KV disagree"
            if self._cache is not None and cached_len // size > row.base_len // size:
                # The blocks before are published. A copy, because ranks read it at their next pass.
                self._cache.publish(cached.slot, cached.ids[:], cached.rules.cache_salt)
            answers[row.sequence_id] = result

    def _draft(
        self, ready: Sequence[RoundRow], min_confidence: float, answers: dict[int, RowResult]
    ) -> None:
        """Run the rows of a draft, and note their answers."""
        proposals = propose(self._model, ready, min_confidence)
        for (row, cached), tokens in zip(ready, proposals, strict=True):
            cached.extend(row.new_ids)
            if self._cache is not None:  # most drafted tokens are soon rolled back
                self._cache.publish(cached.slot, cached.ids[:], cached.rules.cache_salt)
            cached.extend(tokens[: max(row.num_choices - 1, 0)])
            cached_len = len(cached.ids)
            assert cached_len == self._model.cached_len(cached.slot), "ids and KV disagree"
            answers[row.sequence_id] = RowResult(row.sequence_id, OK, cached_len, tokens)

    def _failed(self, row: LeaseRow, cached: CachedSequence) -> RowResult:
        why = cached.rules.failure
        history = (*cached.ids, *row.new_ids)
        if why is None and bans_every_id(cached.rules, history, self._model.vocab_size):
            why = _NO_ID_LEFT
        if self._cache is not None and why is None:
            self._cache.evict(cached.slot)  # a NaN would fail all with this prefix
        self.free([row.sequence_id])
        if why is not None:
            return RowResult(row.sequence_id, RowStatus.INVALID, error=why)
        return RowResult(row.sequence_id, RowStatus.FAILED, error=_NO_TOKEN)
