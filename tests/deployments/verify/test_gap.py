"""What rounding may excuse: measured changes, gaps between choices, filters at their edge."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from deployments.cli.verify.compare import Difference
from deployments.cli.verify.gap import BatchShape, Decoded, measure_gap, measure_logit_change
from specdec_core.config import Numerics
from specdec_core.loading.loader import apply_numerics
from specdec_core.model import ForwardInput, ForwardOutput
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.worker.model_runner import ModelRunner
from tests.fakes import TokenListModel
from tests.tiny_models import VOCAB, tiny_model

PROMPT = (3, 1, 4, 1, 5)


class CompanyModel(TokenListModel):
    """Each fed token that shares a pass adds `step` to the logit of id 7."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def forward(self, batch: ForwardInput) -> ForwardOutput:
        logits = super().forward(batch).logits
        logits[:, 7] += self.step * (len(batch.token_ids) - 1)
        return ForwardOutput(logits)


class FixedModel(TokenListModel):
    """The same logits behind any ids."""

    def __init__(self, *logits: float) -> None:
        super().__init__(vocab_size=len(logits))
        self.fixed = torch.tensor(logits)

    def logits(self, ids: Sequence[int]) -> Tensor:
        return self.fixed.clone()


def decoded(*token_ids: int, prompt: tuple[int, ...] = PROMPT, **params: float) -> Decoded:
    settings = SamplingParams(**{"temperature": 0.0, "max_tokens": 64, **params})  # type: ignore[arg-type]
    return Decoded(
        Request(request_id="0", prompt_token_ids=prompt, params=settings), list(token_ids)
    )


def difference(position: int, expected: int | None, got: int | None) -> Difference:
    return Difference(
        prompt=0, position=position, expected=expected, got=got, reasons=("length", "length")
    )


@pytest.mark.parametrize(("batch_size", "k"), [(1, 1), (1, 4), (4, 1), (4, 4), (3, 8)])
def test_the_measured_change_is_that_of_the_shape(batch_size: int, k: int) -> None:
    rows = [decoded(*range(10, 30), *range(10, 30), prompt=(index,)) for index in range(4)]
    model = CompanyModel(step=0.25)
    change = measure_logit_change(model, rows, BatchShape(batch_size, k, False))
    assert change == pytest.approx(0.25 * (batch_size * (k + 1) - 1), rel=1e-5)
    assert model.num_slots == 0
    assert measure_logit_change(TokenListModel(), rows, BatchShape(batch_size, k, False)) == 0.0


def test_answers_of_other_lengths_are_compared_to_their_ends() -> None:
    rows = [decoded(*range(2, 2 + length)) for length in (0, 1, 7, 20)]
    assert measure_logit_change(TokenListModel(), rows, BatchShape(4, 2, False)) == 0.0
    assert measure_logit_change(CompanyModel(step=1.0), rows, BatchShape(4, 2, False)) > 0


def test_exact_numerics_change_nothing_over_either_cache() -> None:
    model = ModelRunner(tiny_model("mistral").bfloat16(), vocab_size=VOCAB, kv_cache_tokens=2048)
    prompts = [tuple(range(5, 5 + length)) for length in (17, 2, 1, 40)]
    rows = [decoded(*range(10, 30), prompt=prompt) for prompt in prompts]
    caches = [BatchShape(4, 4, is_padded) for is_padded in (False, True)]
    assert all(measure_logit_change(model, rows, batch_shape) < 1 for batch_shape in caches)
    apply_numerics(model, Numerics.EXACT)
    assert [measure_logit_change(model, rows, batch_shape) for batch_shape in caches] == [0, 0]


def test_a_gap_of_twice_the_change_is_rounding_and_more_is_not() -> None:
    model = FixedModel(0.0, 2.0, 1.75, -1.0)
    for change, is_rounding in ((0.126, True), (0.124, False)):
        gap = measure_gap(model, decoded(1, 1, 1), difference(2, 1, 2), change)
        assert gap == (0.25, 0.25, is_rounding)
    assert model.num_slots == 0


def test_another_id_than_the_second_best_needs_its_own_gap() -> None:
    gap = measure_gap(FixedModel(0.0, 2.0, 1.75, -1.0), decoded(1), difference(0, 1, 3), 0.5)
    assert gap == (0.25, 3.0, False)


def test_the_gap_is_that_behind_the_common_tokens() -> None:
    model = TokenListModel()
    row = decoded(8, 9, 10)
    best, second = model.logits([*PROMPT, 8, 9]).topk(2).values.tolist()
    gap = measure_gap(model, row, difference(2, 10, 11), 0.0)
    assert gap.top_two == pytest.approx(best - second)
    assert gap.chosen == pytest.approx(
        float(model.logits([*PROMPT, 8, 9])[10] - model.logits([*PROMPT, 8, 9])[11])
    )


def test_an_answer_that_ended_elsewhere_is_never_rounding() -> None:
    model = FixedModel(0.0, 1.0)
    for ids in ((None, 1), (1, None), (None, None)):
        gap = measure_gap(model, decoded(1), difference(1, *ids), 1e9)
        assert gap.chosen is None
        assert not gap.is_rounding


def test_noise_is_part_of_the_gap_of_a_sampled_token() -> None:
    model = FixedModel(*[0.0] * 50)
    gap = measure_gap(model, decoded(temperature=0.8, seed=3), difference(0, 4, 5), 0.0)
    assert gap.top_two > 0, "equal logits, so all of it is noise"
    scaled = measure_gap(model, decoded(temperature=1.6, seed=3), difference(0, 4, 5), 0.0)
    assert scaled.top_two == pytest.approx(2 * gap.top_two, rel=1e-5)


def test_an_id_at_the_edge_of_a_filter_may_enter_by_rounding() -> None:
    """Id 2 has the greater noise but top-k 1 keeps it out by a hair: only the edge is close."""
    logits = [2.0, -9.0, 1.99]
    seeds = range(200)
    found = 0
    for seed in seeds:
        row = decoded(temperature=1.0, top_k=1, seed=seed)
        gap = measure_gap(FixedModel(*logits), row, difference(0, 0, 2), 0.006)
        assert gap.is_rounding
        assert not measure_gap(FixedModel(*logits), row, difference(0, 0, 1), 0.006).is_rounding
        found += gap.chosen is not None and abs(gap.chosen) > 1.0
    assert found > 10, "the noise must often be far from a tie"
