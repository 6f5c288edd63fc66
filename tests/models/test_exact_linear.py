"""A linear in exact numerics: called with sizes of one class only, found by measuring."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from specdec_core.batch_invariance.linear import (
    ExactLinear,
    _classes_of,
    find_row_range,
    make_linears_exact,
)
from specdec_core.batch_invariance.module import undo_exact
from specdec_core.batch_invariance.size_classes import SizeSet
from specdec_core.layers.attention.metadata import SizeRange
from specdec_core.layers.packed_linear import pack_linears


class CountingLinear(nn.Linear):
    """Remembers how many rows it was called with."""

    def __init__(self) -> None:
        super().__init__(6, 4)
        self.calls: list[int] = []

    def forward(self, input: Tensor) -> Tensor:
        self.calls.append(input.numel() // self.in_features)
        return super().forward(input)


def rows(low: int, high: int) -> SizeSet:
    return SizeSet((SizeRange(low, high),))


@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 7, 8, 9, 16, 17, 40])
def test_calls_stay_in_the_class(num_rows: int) -> None:
    linear = CountingLinear()
    exact = ExactLinear(linear, rows(3, 8))
    x = torch.randn(1, num_rows, 6)
    with torch.no_grad():
        expected = nn.functional.linear(x, linear.weight, linear.bias)
        torch.testing.assert_close(exact(x), expected)
    assert all(3 <= count <= 8 for count in linear.calls if num_rows)
    assert sum(linear.calls) <= max(num_rows, 3), "no more padding than the smallest call needs"


def shape_dependent(reorders: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nn.Linear sum row by row, in another order when its rows are a number in `reorders`."""

    def forward(self: nn.Linear, input: Tensor) -> Tensor:
        half = self.in_features // 2 if input.shape[0] in reorders else self.in_features
        parts = (slice(None, half), slice(half, None))
        rows = [sum(self.weight[:, part] @ row[part] for part in parts) for row in input]
        return torch.stack(rows)  # type: ignore[arg-type]

    monkeypatch.setattr(nn.Linear, "forward", forward)


@pytest.mark.parametrize(
    ("reorders", "expected"),
    [(range(0), (1, 128)), (range(1, 2), (2, 128)), (range(33, 129), (1, 32))],
)
def test_a_change_of_order_bounds_the_class(
    reorders: range, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape_dependent(reorders, monkeypatch)
    assert find_row_range(nn.Linear(48, 40, bias=False)) == rows(*expected)


def test_a_size_whose_rows_see_their_place_is_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row behind the 32nd is summed in another order, whatever the size of the call."""
    plain = nn.Linear.forward

    def forward(self: nn.Linear, input: Tensor) -> Tensor:
        half = self.in_features // 2
        late = sum(
            input[32:, part] @ self.weight[:, part].T
            for part in (slice(None, half), slice(half, None))
        )
        return torch.cat([plain(self, input)[:32], late])  # type: ignore[list-item]

    monkeypatch.setattr(nn.Linear, "forward", forward)
    assert find_row_range(nn.Linear(48, 40, bias=False)).high <= 32


def test_every_linear_is_wrapped_by_the_class_of_its_shape() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    found = dict(make_linears_exact(model))
    assert sorted(found) == ["8x4+bias", "8x8+bias"]
    assert [wrapped.rows for wrapped in model] == [
        found[n] for n in ("8x8+bias",) * 2 + ("8x4+bias",)
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (96, 64), (33, 40)])
def test_rows_of_a_wrapped_linear_never_see_each_other(
    inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs, outputs, bias=False)).to(dtype)
    pack_linears(model)
    make_linears_exact(model)
    x = torch.randn(300, inputs).to(dtype)
    with torch.inference_mode():
        alone = torch.cat([model(x[i : i + 1]) for i in range(300)])
        for rows in (2, 3, 8, 31, 40, 127, 129, 300):
            assert torch.equal(model(x[:rows]), alone[:rows]), rows
            assert torch.equal(model(x[-rows:]), alone[-rows:]), rows


def test_the_plain_linears_come_back() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    before = [model[0], model[2]]
    make_linears_exact(model)
    assert isinstance(model[0], ExactLinear)
    undo_exact(model)
    assert [model[0], model[2]] == before


def test_a_call_is_padded_to_the_next_size_of_the_class() -> None:
    linear = CountingLinear()
    exact = ExactLinear(linear, SizeSet((SizeRange(2, 3), SizeRange(8, 16))))
    for num_rows in (1, 2, 4, 8, 12, 17):
        x = torch.randn(num_rows, 6)
        with torch.no_grad():
            expected = nn.functional.linear(x, linear.weight, linear.bias)
            torch.testing.assert_close(exact(x), expected)
    assert linear.calls == [2, 2, 8, 8, 12, 9, 8]


def test_wrapping_twice_wraps_once() -> None:
    """Models over the same weights share their wrapped linears, and know their classes."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    classes = make_linears_exact(model)
    wrapped = list(model)
    assert make_linears_exact(model) == classes
    assert list(model) == wrapped


def results_in_order(orders: Sequence[str]) -> list[Tensor | None]:
    """What calls of 1, 2, ... rows give by their orders of sums; `x` where a row's place shows."""
    return [
        None if order == "x" else torch.full((max(size, 4), 2), ord(order))
        for size, order in enumerate(orders, start=1)
    ]


def test_sizes_of_one_order_are_one_class_wherever_they_lie() -> None:
    found = _classes_of(results_in_order("abbaxaab"), 4)
    assert found == [
        SizeSet((SizeRange(1, 1), SizeRange(4, 4), SizeRange(6, 7))),
        SizeSet((SizeRange(2, 3), SizeRange(8, 8))),
    ]
    assert _classes_of(results_in_order("xx"), 4) == []
