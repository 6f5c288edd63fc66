"""The choice equals the slow reference, follows the law, and depends on its own row alone."""

from __future__ import annotations

import functools
import math
import random

import pytest
import torch
from torch import Tensor

from specdec_core.sampling.gumbel import gumbel, hash31, noise_keys
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from tests.sampling import reference

pytestmark = pytest.mark.usefixtures("decider")

PARAMS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.7, seed=2, top_k=5),
    SamplingParams(temperature=1.3, seed=3, top_p=0.8),
    SamplingParams(temperature=0.9, seed=4, min_p=0.1),
    SamplingParams(temperature=1.0, seed=5, top_k=40, top_p=0.9, min_p=0.02),
    SamplingParams(temperature=5.0, seed=6, top_p=0.95),
    SamplingParams(temperature=100.0, seed=7, top_k=700),
    SamplingParams(temperature=1e-6, seed=8, top_p=0.5),
    SamplingParams(temperature=2.0, seed=9, top_k=1),
    SamplingParams(temperature=1.0, seed=10, min_p=1.0),
    SamplingParams(temperature=100.0, seed=11, top_k=600, top_p=0.99),
]


def bf16_logits(num_rows: int, vocab_size: int, seed: int = 0) -> Tensor:
    """Rounded to bfloat16, as a model's are: full of ties."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(num_rows, vocab_size, generator=generator)).bfloat16().float()


def rows_of(params: list[SamplingParams]) -> list[SampleRow]:
    return [SampleRow(SamplingRules(p, 0), 100 + i) for i, p in enumerate(params)]


@pytest.mark.parametrize("vocab_size", [3, 97, 1000, 5000])
def test_choices_equal_the_reference(vocab_size: int) -> None:
    rows = rows_of(PARAMS * 3)
    logits = bf16_logits(len(rows), vocab_size + 7, seed=vocab_size)
    expected = [
        reference.choose_one(z[:vocab_size], row.rules.params, row.position)
        for z, row in zip(logits.tolist(), rows, strict=True)
    ]
    assert choose(logits, rows, vocab_size) == expected


LARGE_VOCAB_SIZE = 10_007
"""That no column size divides."""
LARGE_ROWS = [
    SampleRow(SamplingRules(params, 0), 40 + i)
    for i in range(2)
    for params in (
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=0.8, seed=2, top_p=0.95),
        SamplingParams(temperature=0.8, seed=3, top_p=0.3),
        SamplingParams(temperature=1.0, seed=4, min_p=0.3, top_p=0.9),
        SamplingParams(temperature=1.0, seed=5, top_k=5000, top_p=0.9),
        SamplingParams(temperature=0.02, seed=6),
        SamplingParams(temperature=50.0, seed=7),
    )
]


def large_logits(spread: float) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return spread * torch.randn(len(LARGE_ROWS), LARGE_VOCAB_SIZE, generator=generator)


@functools.cache
def large_reference(spread: float) -> list[int]:
    """Of both ways to choose: the reference takes seconds."""
    return [
        reference.choose_one(z, row.rules.params, row.position)
        for z, row in zip(large_logits(spread).tolist(), LARGE_ROWS, strict=True)
    ]


@pytest.mark.covering(1)
@pytest.mark.parametrize("spread", [0.05, 0.8, 6.0])
def test_flat_and_peaked_rows_of_a_large_vocabulary_equal_the_reference(spread: float) -> None:
    """Nuclei of thousands of ids."""
    logits, rows, expected = large_logits(spread), LARGE_ROWS, large_reference(spread)
    assert choose(logits, rows, LARGE_VOCAB_SIZE) == expected
    alone = [choose(logits[i : i + 1], [row], LARGE_VOCAB_SIZE) for i, row in enumerate(rows)]
    assert alone == [[token] for token in expected]


def test_ties_at_the_edge_of_the_candidates_are_kept_by_id() -> None:
    """60 ids lead, 400 tie behind them, and top-k or top-p end among those."""
    z = [0.0] * 2000
    for v in range(1500, 1560):
        z[v] = 1.0
    for v in range(700, 1100):
        z[v] = 0.5
    params = [SamplingParams(seed=s, top_k=70, temperature=3.0) for s in range(40)]
    params += [SamplingParams(seed=s, top_p=0.2, temperature=2.0) for s in range(40)]
    rows = rows_of(params)
    expected = [reference.choose_one(z, row.rules.params, row.position) for row in rows]
    assert choose(torch.tensor(z).expand(len(rows), -1), rows, len(z)) == expected
    assert any(700 <= token < 1100 for token in expected)


def test_equal_scores_go_to_the_lowest_id() -> None:
    """At a temperature that the noise cannot move a logit of 2^30 by, all three tie."""
    logits = torch.zeros(5, 3000)
    logits[:, [2100, 900, 2999]] = 2.0**30
    rows = rows_of([SamplingParams(temperature=0.5, seed=s) for s in range(5)])
    assert choose(logits, rows, 3000) == [900] * 5


def test_rounding_may_lift_an_id_to_the_leader_by_its_noise() -> None:
    """Logits of 2^23 lie one unit apart; noise above 8.4 rounds up to one, and lower ids win."""
    rows = rows_of([SamplingParams(temperature=0.06, seed=s) for s in range(8)])
    keys = noise_keys([(row.rules.params.seed, row.position) for row in rows], torch.device("cpu"))
    logits = torch.full((8, 20_000), 2.0**23)
    logits[:, -1] += 1.0
    scores = logits + 0.06 * gumbel(keys, torch.arange(20_000, dtype=torch.int32))
    expected = (scores == scores.amax(dim=1, keepdim=True)).int().argmax(dim=1).tolist()
    assert min(expected) < 19_999
    assert choose(logits, rows, 20_000) == expected


@pytest.mark.parametrize("params", PARAMS[:2] + PARAMS[3:4])
def test_a_choice_is_made_where_the_logits_are(params: SamplingParams) -> None:
    """The meta device stands for an accelerator: nothing fails before the answer is read."""
    rows = rows_of([params, params])
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        choose(torch.empty(2, 5000, device="meta"), rows, 5000)


def test_the_greatest_noise_wins_however_improbable_its_id() -> None:
    """Of 49,152 equal ids the one with the fewest bits: 32 of the rows' winners are checked."""
    rows = rows_of([SamplingParams(temperature=1.0, seed=s) for s in range(32)])
    chosen = choose(torch.zeros(32, 49_152), rows, 49_152)
    bits = hash31(
        noise_keys([(row.rules.params.seed, row.position) for row in rows], torch.device("cpu")),
        torch.arange(49_152, dtype=torch.int32),
    )
    assert chosen == bits.argmin(dim=-1).tolist()


def test_the_best_id_may_lie_in_a_column_that_promises_little() -> None:
    """Noise cancels all logits, so that bounds say nothing and one id is half a unit ahead."""
    rows = rows_of([SamplingParams(temperature=1.0, seed=s) for s in range(16)])
    keys = noise_keys([(row.rules.params.seed, row.position) for row in rows], torch.device("cpu"))
    logits = -gumbel(keys, torch.arange(10_007, dtype=torch.int32))
    winners = [random.Random(i).randrange(10_007) for i in range(16)]
    logits[range(16), winners] += 0.5
    assert choose(logits, rows, 10_007) == winners


def test_a_choice_does_not_depend_on_its_companions() -> None:
    rows = rows_of(PARAMS * 4)
    logits = bf16_logits(len(rows), 2000)
    together = choose(logits, rows, 2000)
    alone = [choose(logits[i : i + 1], [row], 2000)[0] for i, row in enumerate(rows)]
    assert together == alone
    order = list(range(len(rows)))
    random.Random(0).shuffle(order)
    shuffled = choose(logits[order], [rows[i] for i in order], 2000)
    assert shuffled == [together[i] for i in order]


@pytest.mark.parametrize("params", PARAMS)
def test_ids_beyond_the_vocabulary_are_never_chosen(params: SamplingParams) -> None:
    logits = torch.zeros(8, 50)
    logits[:, 20:] = 1000.0
    assert all(token < 20 for token in choose(logits, rows_of([params] * 8), 20))


def test_ties_go_to_the_lowest_id_in_a_greedy_row() -> None:
    logits = torch.zeros(1, 10_000)
    logits[0, [77, 4000, 9999]] = 1.0
    assert choose(logits, rows_of([SamplingParams(temperature=0.0)]), 10_000) == [77]


def test_top_k_keeps_exactly_k_of_tied_ids_the_lowest_ones() -> None:
    """All 3000 ids tie, beyond every number of candidates but the whole row."""
    rows = [SampleRow(SamplingRules(SamplingParams(top_k=7, seed=3), 0), i) for i in range(300)]
    assert set(choose(torch.zeros(300, 3000), rows, 3000)) == set(range(7))


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("params", PARAMS)
def test_a_row_without_a_finite_greatest_logit_fails_alone(
    params: SamplingParams, value: float
) -> None:
    logits = bf16_logits(3, 300)
    rows = rows_of([params] * 3)
    healthy = choose(logits, rows, 300)
    logits[1] = value
    assert choose(logits, rows, 300) == [healthy[0], NO_CHOICE, healthy[2]]
    logits[1] = 0.0
    logits[1, 17] = math.nan
    assert choose(logits, rows, 300)[1] == NO_CHOICE


def test_banned_ids_are_never_chosen() -> None:
    logits = torch.full((12, 600), -math.inf)
    logits[:, [5, 300]] = torch.tensor([0.0, 1.0])
    assert set(choose(logits, rows_of(PARAMS), 600)) <= {5, 300}


def test_temperature_zero_is_the_limit_of_small_temperatures() -> None:
    logits = bf16_logits(16, 500)
    logits += torch.arange(500).flip(0) * 1e-4
    greedy = choose(logits, rows_of([SamplingParams(temperature=0.0)] * 16), 500)
    assert choose(logits, rows_of([SamplingParams(temperature=1e-7)] * 16), 500) == greedy


def test_no_rows_choose_nothing() -> None:
    assert choose(torch.empty(0, 10), [], 10) == []


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.5),
        SamplingParams(temperature=1.0, top_k=3),
        SamplingParams(temperature=1.0, top_p=0.7),
        SamplingParams(temperature=1.0, min_p=0.2),
    ],
)
def test_choices_follow_the_filtered_distribution(params: SamplingParams) -> None:
    """Chi-square over at most 8 ids and 20,000 positions of one fixed seed.

    With 7 degrees of freedom the bound 29.9 is exceeded with probability 1e-4.
    """
    z = [1.0, 0.2, -0.5, 2.0, 0.0, -3.0, 1.5, 0.7]
    kept = reference.kept_ids(z, params)
    weights = {v: math.exp(z[v] / params.temperature) for v in kept}
    count = 20_000
    rows = [SampleRow(SamplingRules(params, 0), position) for position in range(count)]
    chosen = choose(torch.tensor([z]).expand(count, -1), rows, len(z))
    statistic = 0.0
    for v in kept:
        expected = count * weights[v] / sum(weights.values())
        statistic += (chosen.count(v) - expected) ** 2 / expected
    assert set(chosen) <= set(kept)
    assert statistic < 29.9
