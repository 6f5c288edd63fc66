"""One draft at one temperature against the target, behind prefixes that the target emitted.

Shape legend: N positions (all answers of a temperature, one after the other), V vocabulary.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from benchmarks.studies.coupling.law import Acceptance, acceptances, expected_rounds
from specdec_core import SamplingParams
from specdec_core.choice_rules import SampleRow, SamplingRules
from specdec_core.sampling.sampler import choose

_FIRST_FREE_SEED = 1 << 32
"""Beyond the seeds of the answers: an answer's own noise is what chose its tokens."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt and what plain decoding emitted behind it."""

    prompt: tuple[int, ...]
    emitted: tuple[int, ...]
    params: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Means over all positions; mappings go by rule, as in `Acceptance`."""

    draft: str
    temperature: float
    num_positions: int
    total_variation: float
    acceptance: dict[str, float]
    standard_error: dict[str, float]
    """Of those means, from the spread of the answers' means."""
    measured: float
    """Coupled acceptance with the noise of several seeds, counted."""
    measured_error: float
    acceptance_length: dict[str, float]
    """Tokens committed per round that drafts K, along the same answers."""


def logits_behind(model: Any, answers: Sequence[Answer]) -> Iterator[Tensor]:
    """Logits that chose each answer's tokens, [N, V]; answers of one prompt share its pass."""
    cache = DynamicCache()
    prompt: tuple[int, ...] = ()
    for answer in answers:
        if answer.prompt != prompt:
            cache, prompt = DynamicCache(), answer.prompt
            _feed(model, cache, prompt[:-1])
        fed = [prompt[-1], *answer.emitted[:-1]]
        yield _feed(model, cache, fed)
        cache.crop(-len(fed))


def _feed(model: Any, cache: DynamicCache, ids: Sequence[int]) -> Tensor:
    logits: Tensor = model(torch.tensor([ids]), past_key_values=cache).logits[0]
    return logits


def point_of(
    draft: str,
    answers: Sequence[Answer],
    target_logits: Sequence[Tensor],
    draft_logits: Sequence[Tensor],
    *,
    num_draft_tokens: int,
    num_seeds: int,
) -> Point:
    """All answers have one temperature; a tensor of logits belongs to each."""
    temperature = answers[0].params.temperature
    by_answer, given_output = [], []
    for answer, z_NV, y_NV in zip(answers, target_logits, draft_logits, strict=True):
        log_p_NV, log_q_NV = _log_law(z_NV, temperature), _log_law(y_NV, temperature)
        average, given = acceptances(log_p_NV, log_q_NV, torch.tensor(answer.emitted))
        by_answer.append(average)
        given_output.append(given)
    means = [{rule: float(x.mean()) for rule, x in a._asdict().items()} for a in by_answer]
    overall = {
        rule: float(torch.cat([getattr(a, rule) for a in by_answer]).mean())
        for rule in Acceptance._fields
    }
    measured, measured_error = _measured(answers, target_logits, draft_logits, num_seeds)
    return Point(
        draft=draft,
        temperature=temperature,
        num_positions=sum(len(answer.emitted) for answer in answers),
        total_variation=1.0 - overall["rejection"],
        acceptance=overall,
        standard_error={rule: _standard_error([m[rule] for m in means]) for rule in overall},
        measured=measured,
        measured_error=measured_error,
        acceptance_length={
            rule: _length([getattr(a, rule).tolist() for a in given_output], num_draft_tokens)
            for rule in Acceptance._fields
            if rule != "bound"
        },
    )


def _log_law(logits_NV: Tensor, temperature: float) -> Tensor:
    return (logits_NV.double() / temperature).log_softmax(dim=-1)


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _length(acceptances: Sequence[Sequence[float]], num_draft_tokens: int) -> float:
    rounds = sum(expected_rounds(answer, num_draft_tokens) for answer in acceptances)
    return sum(len(answer) for answer in acceptances) / rounds


def _measured(
    answers: Sequence[Answer],
    target_logits: Sequence[Tensor],
    draft_logits: Sequence[Tensor],
    num_seeds: int,
) -> tuple[float, float]:
    """Share of positions where both choose the same id, and its standard error over answers."""
    equal = []
    for index, answer in enumerate(answers):
        seeds = range(
            _FIRST_FREE_SEED + index * num_seeds, _FIRST_FREE_SEED + (index + 1) * num_seeds
        )
        equal.append(
            [
                x == y
                for seed in seeds
                for x, y in zip(
                    choices(answer, target_logits[index], seed),
                    choices(answer, draft_logits[index], seed),
                    strict=True,
                )
            ]
        )
    shares = [sum(each) / len(each) for each in equal]
    return sum(map(sum, equal)) / sum(map(len, equal)), _standard_error(shares)


def choices(answer: Answer, logits_NV: Tensor, seed: int) -> list[int]:
    """What would be chosen at every position of an answer if its seed were this one."""
    params = replace(answer.params, seed=seed)
    rules = SamplingRules(params, len(answer.prompt))
    rows = [SampleRow(rules, len(answer.prompt) + i) for i in range(len(answer.emitted))]
    return choose(logits_NV, rows, logits_NV.shape[1])
