"""A draft's K passes in a row on the device. The host waits once, for all proposed tokens.

A step is one recorded unit of work. It runs a pass, samples a token for every row, and writes the
numbers of the next pass, which reads that token. A row that has drafted enough becomes padding.
Shape legend: R rows, V vocabulary, K maximum drafted tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.config import MAX_DRAFT_TOKENS
from specdec_core.host_copies import copy_without_waiting
from specdec_core.kv_cache.paged import PagedKV
from specdec_core.model import DraftChoice, ForwardInput
from specdec_core.sampling.device import (
    NUM_FACTS,
    ChoiceKind,
    choose_on_device,
    facts_of,
    kind_of,
    pack_facts,
)
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling_params import SamplingParams
from specdec_core.worker.cuda_graphs.buckets import MAX_ROWS, Bucket, Shape
from specdec_core.worker.cuda_graphs.graph_runner import CudaGraphRunner
from specdec_core.worker.cuda_graphs.recorder import Work
from specdec_core.worker.cuda_graphs.static_input import PassNumbers


class _Step(NamedTuple):
    """Work of a step in addition to its pass."""

    kind: ChoiceKind
    confident_only: bool


class DraftLoop:
    """Drafts for rows that have cached all of their committed tokens except a few."""

    def __init__(self, passes: CudaGraphRunner, kv: PagedKV, vocab_size: int) -> None:
        device = kv.shape.device
        self._passes = passes
        self._kv = kv
        self._vocab_size = vocab_size
        self._numbers = torch.zeros(
            1 + (1 + NUM_FACTS) * MAX_ROWS, dtype=torch.int32, device=device
        )
        """The step's number, the tokens that each row has still to draft, then the rows' facts."""
        self._chosen_KR = torch.zeros(MAX_DRAFT_TOKENS, MAX_ROWS, dtype=torch.int32, device=device)

    @torch.inference_mode()
    def propose(
        self, batch: ForwardInput, choices: Sequence[DraftChoice], min_confidence: float
    ) -> list[tuple[int, ...]] | None:
        """See DraftsInOneGo. Return None if the rows fit no fixed shape."""
        batch = batch._replace(starts=[self._kv.cached_len(slot) for slot in batch.slots])
        num_choices, params = zip(*choices, strict=True)
        num_steps = max(num_choices)
        if num_steps > MAX_DRAFT_TOKENS:
            return None
        own = self._passes.bucket_of(batch, num_ahead=num_steps - 1)
        if own is None:
            return None
        step = _Step(kind_of(params), min_confidence > 0.0)
        first = self._passes.shape_for(own, step).bucket
        works = self._record(step, first, num_steps)
        if works is None:
            return None
        num_new = [n + k - 1 for n, k in zip(batch.token_counts, num_choices, strict=True)]
        self._kv.extend(dict(zip(batch.slots, num_new, strict=True)))
        try:
            self._passes.fill(batch, first)
            self._fill(num_choices, params, min_confidence, first.rows)
            for work in works:
                work()
            chosen_KR = self._chosen_KR[:num_steps, : len(batch.slots)].tolist()  # the only wait
        except BaseException:
            for slot, start in zip(batch.slots, batch.starts, strict=True):
                self._kv.rollback(slot, start)
            raise
        rows = zip(batch.slots, num_choices, zip(*chosen_KR, strict=True), strict=True)
        return [self._trim(*row) for row in rows]

    def _record(self, step: _Step, first: Bucket, num_steps: int) -> list[Work] | None:
        """Return the work of every step. All steps are recorded before the buffers are filled, and
        no recording evicts the recording of another step."""
        later = first._replace(queries=self._passes.min_queries)
        shapes = [Shape(first, step)] + [Shape(later, step)] * (num_steps - 1)
        works: list[Work] = []
        for shape in shapes:
            run = partial(self.step, shape.bucket, later, step)
            work = self._passes.recorded(shape, run, self._numbers, shapes)
            if work is None:
                return None
            works.append(work)
        return works

    def _fill(
        self,
        num_choices: Sequence[int],
        params: Sequence[SamplingParams],
        min_confidence: float,
        num_rows: int,
    ) -> None:
        numbers = array("i", [0, *num_choices])
        numbers.extend([0] * (num_rows - len(num_choices)))
        numbers += pack_facts(params, min_confidence, num_rows)
        target = self._numbers[: len(numbers)]
        copy_without_waiting(torch.frombuffer(numbers, dtype=torch.int32), target)

    def _trim(self, slot: int, num_choices: int, chosen: Sequence[int]) -> tuple[int, ...]:
        """Return the proposal, which ends before the first position where nothing was chosen."""
        tokens = takewhile(lambda token: token != NO_CHOICE, chosen[:num_choices])
        proposal = tuple(tokens)
        num_unfed = num_choices - 1 - len(proposal)
        if num_unfed > 0:
            self._kv.rollback(slot, self._kv.cached_len(slot) - num_unfed)
        return proposal

    def step(self, bucket: Bucket, later: Bucket, step: _Step) -> None:
        """Run a pass of `bucket`, sample a token per row, and write the numbers of a pass of
        `later`."""
        numbers, logits_RV = self._passes.numbers(bucket), self._passes.forward(bucket)
        number, remaining_R, facts = self._numbers_of(bucket.rows)
        chosen_R = choose_on_device(
            logits_RV[:, : self._vocab_size].float(),
            (numbers.starts + numbers.counts).long().unsqueeze(1),
            facts_of(facts),
            step.kind,
            step.confident_only,
        ).int()
        chosen_KR = self._chosen_KR[:, : bucket.rows]
        chosen_KR.index_copy_(0, number.long(), chosen_R.unsqueeze(0))
        number.add_(1).remainder_(MAX_DRAFT_TOKENS)  # warm-ups count on
        remaining_R.sub_(1).clamp_(min=0)
        self._continue(self._passes.numbers(later), remaining_R, chosen_R)

    def _continue(self, later: PassNumbers, remaining_R: Tensor, chosen_R: Tensor) -> None:
        """Feed the token just chosen for every row that has to draft more."""
        num_rows, num_queries = later.ids.shape
        later.starts.add_(later.counts)
        later.counts.copy_(remaining_R.clamp(max=1))
        later.ids[:, 0] = chosen_R.clamp(min=0)
        later.wanted.copy_(torch.arange(num_rows, device=chosen_R.device) * num_queries)

    def _numbers_of(self, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        used = self._numbers[: 1 + (1 + NUM_FACTS) * num_rows]
        number, remaining_R, facts = torch.split(used, [1, num_rows, NUM_FACTS * num_rows])
        return number, remaining_R, facts
