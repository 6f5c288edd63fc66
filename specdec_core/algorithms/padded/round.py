"""One round of the paper's algorithms over a left-padded batch, and the cost of each of its stages.

The in-place algorithms run the same draft and verify halves (worker/round.py). The differences are
the place of a row's KV, and the need to move it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from specdec_core.algorithms.live_sequence import LiveSequence, RequestQueue
from specdec_core.algorithms.padded.cache import PaddedRow, stack
from specdec_core.algorithms.padded.interface import PaddedBatch, PaddedLM
from specdec_core.algorithms.padded.invariants import check_invariants, check_rectangle
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName, SchedulerConfig, SpecMethod
from specdec_core.grammar import GrammarCompiler
from specdec_core.messages import RowResult
from specdec_core.model import ForwardInput
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling.token_logprobs import take_prompts
from specdec_core.scheduler.stats import SchedulerStats
from specdec_core.speculation.drafter import Drafter, Observed
from specdec_core.speculation.registry import LocalDrafters, draft_method, offers_of
from specdec_core.stopwatch import Stopwatch
from specdec_core.worker.round import RoundRow, propose, round_row, score_and_verify


@dataclass(eq=False, slots=True)
class PaddedGroup:
    """Sequences that share a rectangle, and the KV of both models, row for row.

    Between rounds the target caches all but the last token of each sequence (I3). The draft caches
    a prefix of that, and is fed the missing tokens in its next round.
    """

    sequences: list[LiveSequence]
    target: PaddedBatch
    draft: PaddedBatch | None

    @property
    def batches(self) -> list[PaddedBatch]:
        return [self.target] if self.draft is None else [self.target, self.draft]

    @property
    def content_lens(self) -> list[int]:
        return [len(sequence.ids) for sequence in self.sequences]

    @property
    def has_equal_lengths(self) -> bool:
        return len(set(self.content_lens)) == 1


class PaddedRound:
    """Runs the stages of a round and adds up their seconds and the bytes that they move."""

    def __init__(self, target: PaddedLM, draft: PaddedLM | None, config: SchedulerConfig) -> None:
        self._models = [target] if draft is None else [target, draft]
        self._speculation = config.speculation
        # Under every K policy, all drafted tokens are verified.
        fixed = replace(config.speculation, k_policy=KPolicyName.FIXED, k_schedule=())
        self._drafters = LocalDrafters(fixed)
        self._checks_invariants = config.check_invariants
        self._stats = SchedulerStats()
        self._aligned_bytes = 0
        self._stacked_bytes = 0
        self._draft_watch = Stopwatch(target.device)
        self._verify_watch = Stopwatch(target.device)
        self._align_watch = Stopwatch(target.device)
        self._stack_watch = Stopwatch(target.device)
        self.schedule_watch = Stopwatch(torch.device("cpu"))

    def left_pad(self, sequences: Sequence[LiveSequence]) -> PaddedGroup:
        """Return a rectangle of fresh sequences. The target caches all but their last tokens."""
        lengths = [len(sequence.ids) for sequence in sequences]
        batches = [PaddedBatch(model, model.new_batch(lengths)) for model in self._models]
        group = _group(sequences, batches)
        with self._verify_watch:
            fresh = {row: s for row, s in enumerate(sequences) if len(s.ids) > 1}
            shares = [s.prompt_share for s in fresh.values()]
            batch = ForwardInput.of(
                (row, s.ids[:-1], share.num_rows)
                for (row, s), share in zip(fresh.items(), shares, strict=True)
            )
            logits = group.target.forward(batch).logits
            prompts, _ = take_prompts(logits, shares, self._models[0].vocab_size)
            for sequence, prompt in zip(fresh.values(), prompts, strict=True):
                sequence.prompt_logprobs = prompt
        return group

    def draft(self, group: PaddedGroup) -> list[tuple[int, ...]]:
        """Return the proposal of every row, each with the row's own K; () for a row without
        speculation."""
        with self._draft_watch:
            wanted = [s.num_draft_tokens(self._speculation) for s in group.sequences]
            proposals = self._offered(group, wanted)
            if group.draft is not None:
                limit = group.draft.model.max_model_len
                inputs = {
                    row: _draft_input(group.draft, row, group.sequences[row], k, limit)
                    for row, k in enumerate(wanted)
                    if k > 0 and not proposals[row] and self._uses_model(group.sequences[row])
                }
                inputs = {row: own for row, own in inputs.items() if own[0].num_choices > 0}
                wanted_inputs = list(inputs.values())
                drafted = propose(group.draft, wanted_inputs, self._speculation.min_confidence)
                for row, proposal in zip(inputs, drafted, strict=True):
                    proposals[row] = proposal
        return proposals

    def verify(self, group: PaddedGroup, proposals: Sequence[tuple[int, ...]]) -> list[RowResult]:
        """Verify [last token, drafts] of every row in one target pass; return the longest matching
        prefixes."""
        if self._checks_invariants:
            check_invariants(group.target.kv, group.content_lens)
            for batch in group.batches:
                check_rectangle(batch.kv, group.content_lens)
        self._stats.group_sizes[len(group.sequences)] += 1
        self._stats.num_equal_length_groups += group.has_equal_lengths
        with self._verify_watch:
            inputs = [
                _row(row, s, len(s.ids) - 1, proposal, len(proposal) + 1)
                for row, (s, proposal) in enumerate(zip(group.sequences, proposals, strict=True))
            ]
            return score_and_verify(group.target, inputs)

    def commit(
        self,
        group: PaddedGroup,
        proposals: Sequence[tuple[int, ...]],
        results: Sequence[RowResult],
    ) -> list[TokenEvent]:
        """Append the decided tokens. Both caches forget the tokens after the first N - 1."""
        events = []
        lengths = group.content_lens
        rows = zip(group.sequences, proposals, results, strict=True)
        for row, (sequence, proposal, result) in enumerate(rows):
            event = sequence.commit(len(proposal), result)
            num_accepted = min(result.num_accepted, len(event.token_ids))
            self._stats.record_round(len(proposal), num_accepted, len(event.token_ids))
            for batch in group.batches:
                batch.rollback(row, len(sequence.ids) - 1)
            events.append(event)
        if self._drafters.learn:
            self._learn(group, lengths, results)
        return events

    def realign(self, group: PaddedGroup) -> PaddedGroup | None:
        """Unpad, append, repad: finished rows leave, and the contents of the others end
        together."""
        live = [row for row, s in enumerate(group.sequences) if s.finish_reason is None]
        if not live:
            return None
        group.sequences = [group.sequences[row] for row in live]
        with self._align_watch:
            for batch in group.batches:
                self._aligned_bytes += batch.kv.realign(live, group.content_lens)
        return group

    def stack(self, groups_and_rows: Sequence[tuple[PaddedGroup, int]]) -> PaddedGroup:
        """Return a new rectangle of rows that come from several groups. Padding them to a common
        length counts as alignment. Rows of equal length are only put side by side."""
        sequences = [group.sequences[row] for group, row in groups_and_rows]
        lengths = [len(sequence.ids) for sequence in sequences]
        is_aligning = len(set(lengths)) > 1
        batches, num_bytes = [], 0
        with self._align_watch if is_aligning else self._stack_watch:
            for index, model in enumerate(self._models):
                rows = [PaddedRow(group.batches[index].kv, r) for group, r in groups_and_rows]
                num_bytes += sum(row.num_bytes for row in rows)
                batches.append(PaddedBatch(model, stack(rows, lengths)))
        if is_aligning:
            self._aligned_bytes += num_bytes
        else:
            self._stacked_bytes += num_bytes
        return _group(sequences, batches)

    @property
    def stats(self) -> AlgorithmStats:
        stats = self._stats
        view_s = self._models[0].view_s
        return AlgorithmStats(
            num_rounds=stats.group_sizes.total(),
            num_committed=stats.num_committed,
            **stats.round_totals()._asdict(),
            num_groups=stats.group_sizes.total(),
            num_equal_length_groups=stats.num_equal_length_groups,
            seconds={
                "draft": self._draft_watch.seconds,
                "verify": self._verify_watch.seconds - view_s,
                "align": self._align_watch.seconds,
                "view": view_s,
                "stack": self._stack_watch.seconds,
                "schedule": self.schedule_watch.seconds,
            },
            aligned_bytes=self._aligned_bytes,
            stacked_bytes=self._stacked_bytes,
        )

    def _offered(self, group: PaddedGroup, wanted: Sequence[int]) -> list[tuple[int, ...]]:
        """Return what local drafters propose for the rows. They come first, unless a draft model
        replaces them."""
        proposals: list[tuple[int, ...]] = [() for _ in wanted]
        by_drafter: dict[Drafter, list[int]] = {}
        for row, sequence in enumerate(group.sequences):
            method = draft_method(self._speculation, sequence.request)
            drafter = self._drafters.of(method)
            is_replaced = method == SpecMethod.DRAFT_MODEL and group.draft is not None
            if wanted[row] > 0 and drafter is not None and not is_replaced:
                by_drafter.setdefault(drafter, []).append(row)
        for drafter, indices in by_drafter.items():
            rows = [group.sequences[row] for row in indices]
            offers = offers_of(drafter, rows, [wanted[row] for row in indices])
            for row, offer in zip(indices, offers, strict=True):
                proposals[row] = offer.tokens
        return proposals

    def _learn(
        self, group: PaddedGroup, lengths: Sequence[int], results: Sequence[RowResult]
    ) -> None:
        """Tell local drafters what the pass committed after each row's `lengths` tokens."""
        by_drafter: dict[Drafter, tuple[list[LiveSequence], list[Observed]]] = {}
        for sequence, length, result in zip(group.sequences, lengths, results, strict=True):
            if sequence.drafter is not None:
                chosen = tuple(sequence.ids[length:])
                rows, observed = by_drafter.setdefault(sequence.drafter, ([], []))
                rows.append(sequence)
                observed.append(Observed(1, chosen, min(result.num_accepted, len(chosen))))
        for drafter, (rows, observed) in by_drafter.items():
            drafter.learn(rows, observed)

    def _uses_model(self, sequence: LiveSequence) -> bool:
        return draft_method(self._speculation, sequence.request) in DRAFT_MODEL_METHODS


def _group(sequences: Sequence[LiveSequence], batches: Sequence[PaddedBatch]) -> PaddedGroup:
    return PaddedGroup(list(sequences), batches[0], batches[1] if len(batches) > 1 else None)


def _draft_input(
    draft: PaddedBatch, row: int, sequence: LiveSequence, num_tokens: int, max_model_len: int
) -> RoundRow:
    """Return a round that catches up with the committed tokens, then drafts up to the draft's last
    position."""
    num_tokens = min(num_tokens, max_model_len - len(sequence.ids))
    return _row(row, sequence, draft.cached_len(row), (), num_tokens)


def _row(
    row: int,
    sequence: LiveSequence,
    cached_len: int,
    proposal: tuple[int, ...],
    num_choices: int,
) -> RoundRow:
    """Return a round of a sequence whose first `cached_len` tokens are cached in `row`."""
    new_ids, rules = sequence.ids[cached_len:], sequence.rules
    ids = sequence.ids[:cached_len] if rules.needs_history else ()
    return round_row(row, new_ids, proposal, num_choices, rules, ids=ids)


class PaddedAlgorithm:
    """The part that the paper's algorithms share: the queue of requests and the round."""

    def __init__(
        self,
        target: PaddedLM,
        draft: PaddedLM | None = None,
        *,
        config: SchedulerConfig,
        grammars: GrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._round = PaddedRound(target, draft, config)
        self._queue = RequestQueue(target.max_cached_tokens, grammars)
        self._batch_size = config.max_group_size
        self._clock = clock

    @property
    def has_work(self) -> bool:
        return self._queue.has_work

    @property
    def stats(self) -> AlgorithmStats:
        return self._round.stats

    def add(self, request: Request) -> None:
        self._queue.add(request, self._clock())

    def _run(self, group: PaddedGroup) -> list[TokenEvent]:
        """Run one round of the group; return the committed tokens."""
        proposals = self._round.draft(group)
        results = self._round.verify(group, proposals)
        return self._round.commit(group, proposals, results)
