"""Decode the cells of an audit with one target and compare every answer with the reference.

The reference is plain decoding, one sequence at a time. Reference answers are kept by (prompt,
temperature). Each is decoded once, when the first cell needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deployments.cli.verify.cells import PADDED, PLAIN, Cell, Point, Task
from deployments.cli.verify.compare import (
    Answer,
    Difference,
    LogprobChange,
    first_difference,
    logprob_change,
)
from deployments.cli.verify.gap import BatchShape, Decoded, Gap, measure_gap, measure_logit_change
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import DRAFT_MODEL_METHODS, Numerics, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.model import CachedModel
from specdec_core.request import Request

MakeRequest = Callable[[int, float], Request]
"""Makes the request of (prompt, temperature). Its ID is the prompt's number."""
MakeConfig = Callable[[Point, int], SchedulerConfig]
"""Makes the scheduler configuration of (point, number of requests)."""
Report = Callable[[str, int], None]
"""Called with the name of the decoding and its number of newly finished answers."""


def batch_shape_of(cell: Cell) -> BatchShape:
    _, num_draft_tokens, batch_size, _ = cell.point
    return BatchShape(batch_size, num_draft_tokens, is_padded=cell.algorithm in PADDED)


class Judged(NamedTuple):
    """A difference and how close the choice was."""

    difference: Difference
    gap: Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    cell: Cell
    numerics: Numerics
    prompts: tuple[int, ...]
    judged: tuple[Judged, ...]
    logit_change: float | None
    """Change of logits measured for rows in company. None if there was no difference."""
    logprobs: LogprobChange | None
    """Change of log-probabilities. None if they were not requested."""
    stats: AlgorithmStats
    num_tokens: int
    seconds: float

    @property
    def num_equal(self) -> int:
        return len(self.prompts) - len(self.judged)

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def failures(self) -> list[str]:
        """Contradictions to the promise. Empty if the cell holds it."""
        is_exact = self.numerics is Numerics.EXACT
        wrong = [item for item in self.judged if is_exact or not item.gap.is_rounding]
        found = []
        if wrong:
            cause = "" if is_exact else " by more than rounding explains"
            found.append(f"{len(wrong)} of {len(self.prompts)} answers differ{cause}")
        if self.logprobs is not None and self.logprobs.num_missing:
            found.append(f"{self.logprobs.num_missing} answers lack logprobs")
        if is_exact and self.logprobs is not None and self.logprobs.num_different:
            found.append(f"logprobs of {self.logprobs.num_different} equal answers differ")
        if self.cell.point.num_draft_tokens and not self.stats.num_accepted:
            found.append(
                "no drafted token was accepted, so the run shows nothing: use more prompts "
                "or tokens"
            )
        return found


@dataclass(slots=True)
class Speed:
    num_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds if self.seconds else 0.0


@dataclass(eq=False, slots=True)
class Audit:
    """One target, its draft, and the reference answers of plain decoding so far."""

    target: CachedModel
    draft: CachedModel | None
    numerics: Numerics
    make_request: MakeRequest
    make_config: MakeConfig
    report: Report
    references: dict[tuple[int, float], Answer] = field(default_factory=dict)
    """Reference answers by (prompt, temperature). Answers of an earlier audit may be put here."""
    reference_speed: Speed = field(default_factory=Speed)
    _logit_changes: dict[BatchShape, float] = field(default_factory=dict)

    def reference(self, prompt: int, temperature: float) -> Answer:
        """Return the answer of plain decoding, one sequence at a time."""
        key = (prompt, temperature)
        if key not in self.references:
            cell = Cell(PLAIN, Point(SpecMethod.NONE, 0, 1, temperature))
            started = time.perf_counter()
            (answer,), _ = self._decode(cell, (prompt,))
            self.reference_speed.seconds += time.perf_counter() - started
            self.reference_speed.num_tokens += len(answer.token_ids)
            self.references[key] = answer
        return self.references[key]

    def run(self, task: Task) -> CellResult:
        """Decode a cell's prompts together and compare each with its reference."""
        cell, prompts = task
        expected = [self.reference(prompt, cell.point.temperature) for prompt in prompts]
        started = time.perf_counter()
        answers, stats = self._decode(cell, prompts)
        seconds = time.perf_counter() - started
        pairs = list(zip(expected, answers, strict=True))
        differences = [
            difference
            for prompt, (right, answer) in zip(prompts, pairs, strict=True)
            if (difference := first_difference(prompt, right, answer)) is not None
        ]
        judged = self._judge(cell, prompts, differences)
        params = self.make_request(prompts[0], cell.point.temperature).params
        return CellResult(
            cell=cell,
            numerics=self.numerics,
            prompts=prompts,
            judged=judged,
            logit_change=self._logit_changes[batch_shape_of(cell)] if differences else None,
            logprobs=None if params.num_logprobs is None else logprob_change(pairs),
            stats=stats,
            num_tokens=sum(len(answer.token_ids) for answer in answers),
            seconds=seconds,
        )

    def _decode(self, cell: Cell, prompts: Sequence[int]) -> tuple[list[Answer], AlgorithmStats]:
        requests = [self.make_request(prompt, cell.point.temperature) for prompt in prompts]
        engine = Engine(
            self.target,
            self.draft if cell.point.method in DRAFT_MODEL_METHODS else None,
            config=self.make_config(cell.point, len(requests)),
            algorithm=AlgorithmName(cell.algorithm),
        )
        answers = {request.request_id: Answer() for request in requests}
        for event in engine.generate(requests):
            answers[event.request_id].take(event)
            if event.finish_reason is not None:
                self.report(cell.name, 1)
        return list(answers.values()), engine.stats

    def _judge(
        self, cell: Cell, prompts: Sequence[int], differences: Sequence[Difference]
    ) -> tuple[Judged, ...]:
        """Judge differences by the measured change of logits for this company.

        If the known change explains too little, measure again, first with the prompts in
        question.
        """
        batch_shape = batch_shape_of(cell)
        if not differences:
            return ()
        if batch_shape not in self._logit_changes:
            self._measure(cell, prompts, differences)
        judged = self._judge_by(self._logit_changes[batch_shape], cell, differences)
        if not all(item.gap.is_rounding for item in judged):
            self._measure(cell, prompts, differences)
            judged = self._judge_by(self._logit_changes[batch_shape], cell, differences)
        return judged

    def _measure(
        self, cell: Cell, prompts: Sequence[int], differences: Sequence[Difference]
    ) -> None:
        wanted = dict.fromkeys([*(item.prompt for item in differences), *prompts])
        decoded = [self._decoded(prompt, cell.point.temperature) for prompt in wanted]
        batch_shape = batch_shape_of(cell)
        change = measure_logit_change(self.target, decoded, batch_shape)
        self._logit_changes[batch_shape] = max(change, self._logit_changes.get(batch_shape, 0.0))

    def _judge_by(
        self, change: float, cell: Cell, differences: Sequence[Difference]
    ) -> tuple[Judged, ...]:
        temperature = cell.point.temperature
        rows = [(item, self._decoded(item.prompt, temperature)) for item in differences]
        return tuple(
            Judged(item, measure_gap(self.target, decoded, item, change)) for item, decoded in rows
        )

    def _decoded(self, prompt: int, temperature: float) -> Decoded:
        answer = self.reference(prompt, temperature)
        return Decoded(self.make_request(prompt, temperature), answer.token_ids)
