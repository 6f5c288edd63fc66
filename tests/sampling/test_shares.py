"""Where a share of the probability ends: decided by the first candidates, or looked at again.

Sizes are such that 64 candidates, the first look, show the end but not the whole row.
"""

from __future__ import annotations

import math

import pytest
import torch

from specdec_core.sampling.filters import filter_candidates, first_candidates
from specdec_core.sampling.sampler import choose
from specdec_core.sampling_params import SampleRow, SamplingParams, SamplingRules
from tests.sampling import reference


def rows_of(num_seeds: int, **filters: float) -> list[SampleRow]:
    params = [SamplingParams(seed=seed, **filters) for seed in range(num_seeds)]  # type: ignore[arg-type]
    return [SampleRow(SamplingRules(one, 0), 7) for one in params]


def check(z: list[float], rows: list[SampleRow]) -> set[int]:
    """The choices equal the reference, in company and alone; which ids they are."""
    expected = [reference.choose_one(z, row.rules.params, row.position) for row in rows]
    logits = torch.tensor([z]).expand(len(rows), -1)
    assert choose(logits, rows, len(z)) == expected
    assert [choose(logits[:1], [row], len(z))[0] for row in rows] == expected
    return set(expected)


@pytest.mark.parametrize("greatest", [3.0, -3.0])
@pytest.mark.parametrize("factor", [1 - 1e-5, 1 + 1e-5])
def test_the_id_at_the_end_of_a_share_is_in_it_or_not(factor: float, greatest: float) -> None:
    """30 of 600 nearly equal ids: the bounds of the whole mass leave the 31st open."""
    z = torch.linspace(greatest, greatest - 0.1, 600).tolist()
    mass = [math.exp(value - z[0]) for value in z]
    share = sum(mass[:30]) / sum(mass)
    chosen = check(z, rows_of(100, top_p=share * factor))
    assert max(chosen) == (30 if factor > 1 else 29)


@pytest.mark.parametrize("filters", [{"top_k": 100}, {"min_p": 0.6}])
def test_a_share_is_one_of_what_the_filters_before_it_keep(filters: dict[str, float]) -> None:
    """Both keep 100 of 400 ids, so a tenth is 10 of them, whatever the other 300 weigh."""
    z = torch.linspace(1.0, 0.999, 400).tolist()
    z[100:] = [value - 0.9 for value in z[100:]]
    chosen = check(z, rows_of(60, top_p=0.1, **filters))
    assert chosen == set(range(10))


def test_a_row_without_a_share_keeps_its_lightest_ids_in_any_company() -> None:
    """The mass of the last id is 0 in units of 2^-32."""
    z = torch.tensor([[0.0, -1.0, -30.0]] * 2)
    first = first_candidates(z, torch.ones(2, 1), 3)
    params = [SamplingParams(), SamplingParams(top_p=0.9)]
    for kept in filter_candidates(first, params, z, torch.ones(2, 1)):
        assert kept.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("num_weightless", [0, 200])
@pytest.mark.parametrize("count", [1, 2, 5, 7, 9])
def test_a_share_may_end_between_two_ids(count: int, num_weightless: int) -> None:
    """count / 10 of ten equal masses, in double precision; others count 0 units of 2^-32."""
    z = [0.0] * 10 + [-30.0] * num_weightless
    rows = rows_of(60, top_p=count / 10)
    kept = reference.kept_ids(z, rows[0].rules.params)
    assert check(z, rows) == set(kept)


def test_filters_work_where_the_logits_are() -> None:
    """The meta device stands for an accelerator."""
    z = torch.empty(2, 300, device="meta")
    scale = torch.empty(2, 1, device="meta")
    params = [SamplingParams(top_p=0.9, top_k=7), SamplingParams(top_p=0.5, min_p=0.1)]
    kept = filter_candidates(first_candidates(z, scale, 64), params, z, scale)
    assert [each.is_meta for each in kept] == [True, True]


@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}])
def test_a_greedy_row_chooses_the_greatest_logit_whatever_its_filters(
    filters: dict[str, float],
) -> None:
    z = [math.sin(i) for i in range(500)]
    assert check(z, rows_of(1, temperature=0.0, **filters)) == {z.index(max(z))}


@pytest.mark.parametrize(("lowest", "others"), [(600, 0), (0, 400)])
def test_greedy_ties_in_more_places_than_are_looked_at_first(lowest: int, others: int) -> None:
    """201 ids tie, in as many columns of 625."""
    z = torch.zeros(1, 10_000)
    z[0, [lowest, *range(625 + others, 825 + others)]] = 1.0
    assert choose(z, rows_of(1, temperature=0.0), 10_000) == [lowest]
