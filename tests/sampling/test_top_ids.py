"""The search by columns finds what a search of the whole row finds."""

from __future__ import annotations

import pytest
import torch

from specdec_core.sampling.top_k import first_ids, indices_in, top_ids


@pytest.mark.parametrize("num_values", [1, 63, 64, 513, 4097, 49_152])
@pytest.mark.parametrize("count", [1, 3, 64, 512])
def test_the_greatest_values_are_found(num_values: int, count: int) -> None:
    count = min(count, num_values)
    z = torch.randn(5, num_values, generator=torch.Generator().manual_seed(num_values))
    z = z.bfloat16().float()
    ids = top_ids(z, count)
    assert torch.equal(ids, ids.sort(dim=-1).values)
    assert all(len(set(row)) == count for row in ids.tolist())
    found = z.gather(1, ids).sort(dim=-1, descending=True).values
    assert torch.equal(found, z.sort(dim=-1, descending=True).values[:, :count])


def test_every_place_is_in_one_column_or_in_none() -> None:
    for num_values in (3, 8, 100):
        width = num_values // 8
        places = indices_in(torch.arange(width).unsqueeze(0), num_values, 8)
        assert sorted(places[0].tolist()) == list(range(num_values))


@pytest.mark.parametrize("num_values", [1, 63, 64, 129, 4097, 49_152])
@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.parametrize("num_different", [2, 40, 100_000])
def test_the_first_ids_are_in_stable_order(num_values: int, count: int, num_different: int) -> None:
    """Many of them tie; both zeros count as one value."""
    count = min(count, num_values)
    generator = torch.Generator().manual_seed(num_values)
    z = torch.randint(num_different, (5, num_values), generator=generator).float()
    z = (z - num_different // 2) * torch.tensor([[1.0], [-1.0], [0.3], [0.0], [-0.0]])
    expected = z.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    assert torch.equal(first_ids(z, count), expected)


def test_ids_without_any_chance_come_last() -> None:
    z = torch.full((1, 300), -torch.inf)
    z[0, [7, 290]] = torch.tensor([-3.0, -2.0])
    assert first_ids(z, 4).tolist() == [[290, 7, 0, 1]]
