"""Both ends of every range of SamplingParams: just inside a choice is made, just outside refused.

Logits are float32, so a value that is a number in float64 may be 0 or infinite there.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch

from specdec_core.errors import InvalidRequestError
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules

pytestmark = pytest.mark.usefixtures("decider")

TINY = (5e-324, 1e-310, 1e-300, 1e-45, 1e-40, 1.1754944e-38, 1e-30)
INSIDE: dict[str, tuple[float, ...]] = {
    "temperature": (0.0, *TINY, 1e-6, 1.0, 100.0),
    "top_p": (*TINY, 1e-9, 0.5, 1 - 2.0**-53, 1.0),
    "min_p": (0.0, *TINY, 0.5, 1 - 2.0**-53, 1.0),
    "top_k": (0, 1, 2**31 - 1),
    "repetition_penalty": (0.01, 0.5, 1.0, 1 + 2.0**-52, 100.0),
    "presence_penalty": (-2.0, -5e-324, 5e-324, 2.0),
    "frequency_penalty": (-2.0, -5e-324, 5e-324, 2.0),
    "seed": (0, 2**63 - 1),
    "max_tokens": (1, 10**30),
    "num_logprobs": (0, 20),
    "num_prompt_logprobs": (0, 20),
}
NO_NUMBERS = (math.nan, math.inf, -math.inf)
OUTSIDE: dict[str, tuple[float, ...]] = {
    "temperature": (-5e-324, -1.0, 100.00001, *NO_NUMBERS),
    "top_p": (0.0, -1.0, 1 + 2.0**-52, *NO_NUMBERS),
    "min_p": (-5e-324, 1 + 2.0**-52, *NO_NUMBERS),
    "top_k": (-1, 2**31, 2**64),
    "repetition_penalty": (0.0, *TINY, 0.0099, 100.1, 1e30, 1e38, 1e300, -1.0, *NO_NUMBERS),
    "presence_penalty": (-2.001, 2.001, 1e300, *NO_NUMBERS),
    "frequency_penalty": (-2.001, 2.001, 1e300, *NO_NUMBERS),
    "seed": (-1, 2**63, 2**64, 10**30),
    "max_tokens": (0, -1),
    "min_tokens": (-1, 17),
    "num_logprobs": (-1, 21),
    "num_prompt_logprobs": (-1, 21),
}
HISTORY = tuple(range(8)) * 3
MIXED = torch.tensor([float(v % 7 - 3) * 9 for v in range(100)])
LOGITS = {
    "mixed": MIXED,
    "negative": -MIXED.abs() - 1,
    "large": MIXED * 1000,
    "zero": torch.zeros(100),
}


def chosen(logits: torch.Tensor, **fields: Any) -> int:
    rules = SamplingRules(SamplingParams(**fields), prompt_len=8)
    (token,) = choose(logits.unsqueeze(0), [SampleRow(rules, len(HISTORY), HISTORY)], 100)
    return token


@pytest.mark.parametrize("name", INSIDE)
def test_a_value_at_the_end_of_its_range_lets_a_token_be_chosen(name: str) -> None:
    for value, (kind, logits), temperature in product(
        INSIDE[name], LOGITS.items(), (0.0, 1e-45, 1.0, 100.0)
    ):
        token = chosen(logits, **{"temperature": temperature, "seed": 3} | {name: value})
        assert token != NO_CHOICE, (value, kind, temperature)
        assert 0 <= token < 100


def test_all_ends_together_let_a_token_be_chosen() -> None:
    names = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty")
    for values in product(*((INSIDE[n][0], INSIDE[n][1], INSIDE[n][-1]) for n in names)):
        fields = dict(zip(names, values, strict=True))
        assert chosen(MIXED * 1000, seed=5, **fields) != NO_CHOICE, fields


@pytest.mark.parametrize("temperature", TINY)
def test_a_tiny_temperature_chooses_as_temperature_0_does(temperature: float) -> None:
    for logits in LOGITS.values():
        spread = logits + torch.arange(100) / 64
        assert chosen(spread, temperature=temperature, seed=9) == chosen(spread, temperature=0.0)


@pytest.mark.parametrize("value", TINY)
def test_a_tiny_top_p_keeps_the_most_probable_token(value: float) -> None:
    spread = MIXED + torch.arange(100) / 64
    for seed in range(8):
        assert chosen(spread, top_p=value, seed=seed) == int(spread.argmax())


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_value_outside_is_refused_with_its_limit(name: str) -> None:
    told = name.removeprefix("num_")
    for value in OUTSIDE[name]:
        with pytest.raises(InvalidRequestError, match=f"^{told} must be ") as refused:
            SamplingParams(**{name: value})
        assert refused.value.param == told
        assert str(value) in str(refused.value)


@pytest.mark.parametrize("bias", [-100.001, 100.001, *NO_NUMBERS])
def test_a_bias_outside_is_refused(bias: float) -> None:
    with pytest.raises(InvalidRequestError, match="logit_bias must map"):
        SamplingParams(logit_bias=((3, bias),))


def test_the_greatest_bans_by_bias_leave_a_choice() -> None:
    everything = tuple((v, -100.0) for v in range(100))
    assert chosen(MIXED * 1000, logit_bias=everything, repetition_penalty=100.0) != NO_CHOICE
