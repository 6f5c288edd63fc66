"""Reported log-probabilities: those of the raw logits, with the same bits in any company."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling.token_logprobs import measure_logprobs
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from tests.sampling import reference


def row(num_logprobs: int | None, **fields: object) -> SampleRow:
    params = SamplingParams(num_logprobs=num_logprobs, **fields)  # type: ignore[arg-type]
    return SampleRow(SamplingRules(params, 1), 5)


def logits_of(num_rows: int, vocab_size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(num_rows, vocab_size, generator=generator)).bfloat16().float()


@pytest.mark.parametrize("vocab_size", [1, 7, 1000, 49152, 49153])
def test_a_row_among_forty_has_the_bits_that_it_has_alone(vocab_size: int) -> None:
    """The padded ids behind the vocabulary are never looked at."""
    logits = logits_of(40, vocab_size + 64)
    rows = [row((3, None, 0, 1, 2)[i % 5]) for i in range(40)]
    tokens = [i * 1201 % vocab_size for i in range(40)]
    together = measure_logprobs(logits, rows, tokens, vocab_size)
    for i in range(40):
        alone = measure_logprobs(logits[i : i + 1], rows[i : i + 1], tokens[i : i + 1], vocab_size)
        assert alone == [together[i]]


def test_a_padded_vocabulary_changes_no_probability() -> None:
    logits = logits_of(3, 300)
    logits[:, 290:] = 50.0
    rows, tokens = [row(4)] * 3, [1, 2, 3]
    expected = measure_logprobs(logits[:, :290], rows, tokens, 290)
    assert measure_logprobs(logits, rows, tokens, 290) == expected


def test_values_and_order_equal_the_reference() -> None:
    logits = logits_of(6, 300)
    for z, entry in zip(
        logits.tolist(), measure_logprobs(logits, [row(20)] * 6, [17] * 6, 300), strict=True
    ):
        assert entry is not None
        expected = reference.logprobs(z)
        order = sorted(range(300), key=lambda v: (-z[v], v))[:20]
        assert entry.logprob == pytest.approx(expected[17], abs=1e-5)
        assert [v for v, _ in entry.top] == order, "most probable first, ties by id"
        assert [value for _, value in entry.top] == pytest.approx(
            [expected[v] for v in order], abs=1e-5
        )


def test_the_least_difference_outweighs_any_difference_of_ids() -> None:
    logits = torch.full((1, 1000), -5.0)
    logits[0, 3] = 1.0
    logits[0, 900] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    (entry,) = measure_logprobs(logits, [row(2)], [3], 1000)
    assert entry is not None
    assert [v for v, _ in entry.top] == [900, 3]


def test_processors_filters_and_temperature_do_not_change_them() -> None:
    logits = logits_of(2, 50)
    asked = row(
        3, temperature=0.3, top_k=2, logit_bias=((4, 9.0),), allowed_token_ids=(4,), top_p=0.5
    )
    assert measure_logprobs(logits, [asked] * 2, [4, 4], 50) == measure_logprobs(
        logits, [row(3)] * 2, [4, 4], 50
    )


def test_only_rows_that_ask_and_have_a_token_are_measured() -> None:
    logits = logits_of(3, 9)
    entries = measure_logprobs(logits, [row(None), row(2), row(2)], [1, NO_CHOICE, 3], 9)
    assert entries[:2] == [None, None]
    assert entries[2] is not None
    assert len(entries[2].top) == 2


def test_zero_reports_the_token_alone_and_no_row_more_ids_than_there_are() -> None:
    alone, everything = measure_logprobs(logits_of(2, 4), [row(0), row(20)], [3, 3], 4)
    assert alone is not None
    assert everything is not None
    assert alone.top == ()
    assert sorted(v for v, _ in everything.top) == [0, 1, 2, 3]


def test_impossible_ids_are_reported_as_such() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    (entry,) = measure_logprobs(logits, [row(3)], [1], 3)
    assert entry is not None
    assert entry.logprob == -math.inf
    assert [v for v, _ in entry.top] == [0, 2, 1]


def test_they_are_measured_where_the_logits_are() -> None:
    """The meta device stands for an accelerator: nothing fails before the answer is read."""
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        measure_logprobs(torch.empty(1, 9, device="meta"), [row(2)], [3], 9)
