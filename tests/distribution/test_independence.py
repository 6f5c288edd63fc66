"""Choices of other seeds, positions and choices of n are independent of each other.

Logits are fixed, so that the joint law of two choices is the product of what softmax says; 36 pairs
of ids, 10,000 pairs of choices: enough to see one pair in twenty that depends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from specdec_core import SamplingParams
from specdec_core.sampling.gumbel import gumbel, noise_keys
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingRules, derive_seed
from tests.distribution.chi_square import ChiSquare, goodness_of_fit

LOGITS = (1.0, 0.2, -0.5, 1.4, 0.0, -1.0)
COUNT = 10_000

Place = tuple[int, int]
"""Seed and absolute position."""

NEIGHBOURS: dict[str, Callable[[int], tuple[Place, Place]]] = {
    "positions of one seed": lambda i: ((42, 2 * i), (42, 2 * i + 1)),
    "positions far apart": lambda i: ((42, i), (42, i + (1 << 16))),
    "seeds at one position": lambda i: ((2 * i, 9), (2 * i + 1, 9)),
    "seeds that differ in one high bit": lambda i: ((i, 9), (i | 1 << 62, 9)),
    "seed against position": lambda i: ((i, i + 1), (i + 1, i)),
    "next position of the next seed": lambda i: ((i, 100), (i + 1, 101)),
    "choices 0 and 1 of n": lambda i: ((i, 30), (derive_seed(i, 1), 30)),
    "choices 0 and 7 of n": lambda i: ((i, 30), (derive_seed(i, 7), 30)),
    "choices 1 and 2 of n": lambda i: ((derive_seed(i, 1), 30), (derive_seed(i, 2), 30)),
    "choice 1 of neighbouring seeds": lambda i: (
        (derive_seed(2 * i, 1), 30),
        (derive_seed(2 * i + 1, 1), 30),
    ),
    "choice 1 and the next position": lambda i: ((derive_seed(i, 1), 30), (i, 31)),
}


def chosen_at(places: list[Place]) -> list[int]:
    rows = [
        SampleRow(SamplingRules(SamplingParams(seed=seed), prompt_len=1), position)
        for seed, position in places
    ]
    return choose(torch.tensor([LOGITS]).expand(len(rows), -1), rows, len(LOGITS))


def fit_of_pairs(first: list[int], second: list[int]) -> ChiSquare:
    weights = [math.exp(z) for z in LOGITS]
    p = [weight / math.fsum(weights) for weight in weights]
    law = {(v, w): p[v] * p[w] for v in range(len(p)) for w in range(len(p))}
    return goodness_of_fit(Counter(zip(first, second, strict=True)), law)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_two_choices_have_the_product_law(name: str) -> None:
    pairs = [NEIGHBOURS[name](i) for i in range(COUNT)]
    result = fit_of_pairs(*(chosen_at(list(places)) for places in zip(*pairs, strict=True)))
    assert not result.is_rejected, str(result)


def test_choices_that_depend_on_each_other_are_rejected() -> None:
    """Every tenth position takes the noise of the one before."""
    first = [(42, 2 * i) for i in range(COUNT)]
    second = [(42, 2 * i + (i % 10 > 0)) for i in range(COUNT)]
    assert fit_of_pairs(chosen_at(first), chosen_at(second)).is_rejected


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_the_noise_of_all_ids_is_uncorrelated(name: str) -> None:
    """200 pairs of rows of 4,096 ids: |r| exceeds 5 / sqrt(n) with probability 6e-7."""
    pairs = [NEIGHBOURS[name](i) for i in range(200)]
    ids = torch.arange(4096, dtype=torch.int32)
    first, second = (
        gumbel(noise_keys(list(places), torch.device("cpu")), ids).double()
        for places in zip(*pairs, strict=True)
    )
    z1, z2 = ((g - g.mean()) / g.std() for g in (first, second))
    assert abs(float((z1 * z2).mean())) < 5 / math.sqrt(first.numel())
