"""Reported log-probabilities are those of the raw logits, whatever shaped or speculated the choice.

The oracle is log_softmax in float64 of the model's logits behind the emitted ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from specdec_core import Request
from specdec_core.logprobs import TokenLogprobs
from specdec_core.sampling.token_logprobs import measure_logprobs
from specdec_core.sampling_params import SampleRow, SamplingRules
from tests.distribution.law import Context, next_id_law
from tests.distribution.processors import PROCESSORS
from tests.distribution.runs import VOCAB, Setting, TableModel, requests_of
from tests.distribution.samples import PLAIN, SEEDS_BY_SETTING, cases

SEEDS = range(6)
TOLERANCE = 2e-6
"""Of log_softmax in float32, for values of at most 10."""
ASKING = {
    name: replace(processor, params=replace(processor.params, num_logprobs=(0, 1, 3, 7)[i % 4]))
    for i, (name, processor) in enumerate(PROCESSORS.items())
}
"""Rows of one batch ask for different numbers, some for more than there are ids."""


class Report(NamedTuple):
    request: Request
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]


@cache
def reports_of(setting: Setting) -> dict[str, Report]:
    engine = setting.engine()
    reports = {
        request.request_id: Report(request, (), ())
        for request in requests_of(setting, ASKING, SEEDS)
    }
    for event in engine.generate([report.request for report in reports.values()]):
        assert len(event.logprobs) == len(event.token_ids)
        request, tokens, logprobs = reports[event.request_id]
        reports[event.request_id] = Report(
            request, tokens + event.token_ids, logprobs + event.logprobs
        )
    return reports


def log_softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    log_sum = top + math.log(math.fsum(math.exp(z - top) for z in logits))
    return [z - log_sum for z in logits]


def expected_of(logits: Sequence[float], token: int, count: int) -> TokenLogprobs:
    values = log_softmax(logits)
    order = sorted(range(len(values)), key=lambda v: (-values[v], v))[:count]
    return TokenLogprobs(values[token], tuple((v, values[v]) for v in order))


def is_close(actual: TokenLogprobs, expected: TokenLogprobs) -> bool:
    numbers = [(actual.logprob, expected.logprob)]
    numbers += [(x, y) for (_, x), (_, y) in zip(actual.top, expected.top, strict=True)]
    same_ids = [v for v, _ in actual.top] == [v for v, _ in expected.top]
    return same_ids and all(abs(x - y) <= TOLERANCE for x, y in numbers)


@pytest.mark.parametrize("setting", cases(SEEDS_BY_SETTING), ids=str)
def test_logprobs_are_log_softmax_of_the_raw_logits(setting: Setting) -> None:
    model = TableModel()
    for request, tokens, logprobs in reports_of(setting).values():
        assert len(logprobs) == len(tokens) > 0
        count = request.params.num_logprobs
        assert count is not None
        for i, (token, reported) in enumerate(zip(tokens, logprobs, strict=True)):
            logits = model.logits_of((*request.prompt_token_ids, *tokens[:i]))
            assert is_close(reported, expected_of(logits, token, min(count, VOCAB)))


@pytest.mark.parametrize("setting", cases(s for s in SEEDS_BY_SETTING if s is not PLAIN), ids=str)
def test_logprobs_are_bit_for_bit_those_of_plain_decoding(setting: Setting) -> None:
    plain = reports_of(PLAIN)
    for request_id, (_, tokens, logprobs) in reports_of(setting).items():
        count = min(len(tokens), len(plain[request_id].tokens))
        assert tokens[:count] == plain[request_id].tokens[:count]
        assert logprobs[:count] == plain[request_id].logprobs[:count]


def test_processed_logits_would_be_noticed() -> None:
    """Every processor but the temperature-free ones moves some emitted token's log-probability."""
    model = TableModel()
    for name in PROCESSORS.keys() - {"untouched", "end_id"}:
        moved = 0.0
        for request_id, (request, tokens, logprobs) in reports_of(PLAIN).items():
            if request_id.partition(" ")[0] == name:
                for i, token in enumerate(tokens):
                    ids = (*request.prompt_token_ids, *tokens[:i])
                    context = Context(request.prompt_token_ids, tokens[:i], request.stop_ids)
                    law = next_id_law(model.logits_of(ids), request.params, context)
                    moved = max(moved, abs(math.log(law[token]) - logprobs[i].logprob))
        assert moved > 100 * TOLERANCE, name


def test_most_probable_ids_that_tie_are_reported_by_id() -> None:
    logits: Tensor = torch.tensor([[0.0, 2.0, -1.0, 2.0, 0.0, 2.0, -1.0, 0.0]])
    params = replace(PROCESSORS["untouched"].params, num_logprobs=6)
    row = SampleRow(SamplingRules(params, prompt_len=1), position=1)
    (reported,) = measure_logprobs(logits, [row], [2], logits.shape[1])
    assert reported is not None
    assert [v for v, _ in reported.top] == [1, 3, 5, 0, 4, 7]
    assert is_close(reported, expected_of(logits[0].tolist(), 2, 6))
