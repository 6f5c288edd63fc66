"""Linear layers that are only called with row counts of one bit class.

The classes are found at load by measuring, on this machine and with this process's threads: which
kernel, which blocking and which summation order a library takes for M rows is its own affair and
changes with every version. Shape legend: M rows of a call, I inputs, O outputs.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from specdec_core.models.numerics import SizeRange, cheapest_run
from specdec_core.models.packed_linear import PackedLinear

_MAX_ROWS = 128
"""Row counts that are tried; more rows run in several calls, which by then costs nothing more."""
_MAX_ROWS_LARGE = 32
_MIN_ROWS_COMPARED = 32
"""So many rows are compared even for calls of one row: a difference need not show in each."""
_MIN_ROWS_COMPARED_LARGE = 8
_LARGE_WEIGHT = 1 << 24
"""Weights of more numbers than this are tried with fewer rows, or loading would take seconds."""

_TYPICAL_ROWS = (1, 8, 40)
_CALL_COST = 16
"""Reading the weights takes as long as so many rows of arithmetic, or more."""

Linear = nn.Linear | PackedLinear


class ExactLinear(nn.Module):
    """Calls `linear` with numbers of rows in `rows` only, so that a row never sees its company."""

    def __init__(self, linear: Linear, rows: SizeRange) -> None:
        super().__init__()
        self.linear = linear
        self.rows = rows

    def forward(self, input: Tensor) -> Tensor:
        num_rows = input.numel() // input.shape[-1]
        if self.rows.low <= num_rows <= self.rows.high or num_rows == 0:
            output: Tensor = self.linear(input)
            return output
        flat_MI = input.reshape(num_rows, -1)
        num_calls = -(-num_rows // self.rows.high)
        tiles = [self._call(tile) for tile in flat_MI.tensor_split(num_calls)]
        output = tiles[0] if num_calls == 1 else torch.cat(tiles)
        return output.view(*input.shape[:-1], -1)

    def _call(self, tile_MI: Tensor) -> Tensor:
        num_missing = self.rows.low - tile_MI.shape[0]
        if num_missing <= 0:
            output: Tensor = self.linear(tile_MI)
            return output
        padding = tile_MI.new_zeros(num_missing, tile_MI.shape[1])
        padded: Tensor = self.linear(torch.cat([tile_MI, padding]))
        return padded[: tile_MI.shape[0]]


@torch.inference_mode()
def make_linears_exact(model: nn.Module) -> tuple[tuple[str, SizeRange], ...]:
    """Wrap the linears of `model`; returns the class of every shape of linear, sorted."""
    found: dict[str, SizeRange] = {}
    linears = [item for item in model.named_modules() if isinstance(item[1], Linear)]
    for name, linear in linears:
        assert isinstance(linear, Linear)
        shape = _shape_name(linear)
        if shape not in found:
            found[shape] = find_row_range(linear)
        model.set_submodule(name, ExactLinear(linear, found[shape]))
    return tuple(sorted(found.items()))


def undo_exact_linears(model: nn.Module) -> None:
    """Put the plain linears back."""
    wrapped = [item for item in model.named_modules() if isinstance(item[1], ExactLinear)]
    for name, exact in wrapped:
        assert isinstance(exact, ExactLinear)
        model.set_submodule(name, exact.linear)


@torch.inference_mode()
def find_row_range(linear: Linear) -> SizeRange:
    """A range of row counts in which every row of such a linear has the same bits.

    Every row count is tried, with every row at two places. The weights are made up: the terms of
    every sum cancel, so that what remains is rounding alone and each change of order shows, where
    with real weights it would show in one row of a hundred.
    """
    generator = torch.Generator().manual_seed(0)
    probe = _cancelling_linear(linear, generator)
    is_large = linear.in_features * linear.out_features > _LARGE_WEIGHT
    num_rows = _MAX_ROWS_LARGE if is_large else _MAX_ROWS
    min_rows = _MIN_ROWS_COMPARED_LARGE if is_large else _MIN_ROWS_COMPARED
    rows_MI = _cancelling_rows(linear, num_rows, generator)
    sizes = range(1, num_rows + 1)
    results = (_result_in_calls_of(probe, rows_MI, size, min_rows) for size in sizes)
    agree = [_agree(shorter, longer) for shorter, longer in pairwise(results)]
    return cheapest_run(agree, _TYPICAL_ROWS, _CALL_COST)


def _result_in_calls_of(probe: Linear, rows_MI: Tensor, size: int, min_rows: int) -> Tensor | None:
    """The first rows' outputs by calls of `size` rows; None where a row's place in a call shows."""
    count = max(size, min_rows)
    starts = [min(start, count - size) for start in range(0, count, size)]
    output_MO = torch.empty(count, probe.out_features, dtype=_dtype(probe), device=_device(probe))
    for start in starts:
        tile_MI = rows_MI[start : start + size]
        direct_MO = probe(tile_MI)
        if not torch.equal(probe(tile_MI.roll(size // 2, 0)).roll(-(size // 2), 0), direct_MO):
            return None
        output_MO[start : start + size] = direct_MO
    return output_MO


def _agree(shorter_MO: Tensor | None, longer_MO: Tensor | None) -> bool:
    if shorter_MO is None or longer_MO is None:
        return False
    return torch.equal(shorter_MO, longer_MO[: shorter_MO.shape[0]])


def _cancelling_linear(linear: Linear, generator: torch.Generator) -> Linear:
    """A linear like the given one whose columns come in pairs of equal weights."""
    half = linear.in_features // 2
    weight_OI = torch.zeros(linear.out_features, linear.in_features)
    paired = torch.randn(linear.out_features, half, generator=generator)
    order = _pair_order(linear.in_features)
    weight_OI[:, order[:half]] = paired
    weight_OI[:, order[half : 2 * half]] = paired
    probe = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    probe = probe.to(_device(linear), _dtype(linear))
    probe.weight.copy_(weight_OI)
    if probe.bias is not None:
        probe.bias.zero_()
    return PackedLinear(probe) if isinstance(linear, PackedLinear) else probe


def _cancelling_rows(linear: Linear, num_rows: int, generator: torch.Generator) -> Tensor:
    """Rows whose numbers come in pairs of opposite sign, where the weights are equal."""
    half = linear.in_features // 2
    paired = torch.randn(num_rows, half, generator=generator)
    rows_MI = torch.zeros(num_rows, linear.in_features)
    order = _pair_order(linear.in_features)
    rows_MI[:, order[:half]] = paired
    rows_MI[:, order[half : 2 * half]] = -paired
    return rows_MI.to(_device(linear), _dtype(linear))


def _pair_order(num_inputs: int) -> Tensor:
    """Where the halves of the pairs lie: i of the first half pairs with i of the second."""
    return torch.randperm(num_inputs, generator=torch.Generator().manual_seed(num_inputs))


def _shape_name(linear: Linear) -> str:
    bias = "+bias" if linear.bias is not None else ""
    return f"{linear.in_features}x{linear.out_features}{bias}"


def _device(linear: Linear) -> torch.device:
    return torch.device("cpu") if isinstance(linear, PackedLinear) else linear.weight.device


def _dtype(linear: Linear) -> torch.dtype:
    return linear.dtype if isinstance(linear, PackedLinear) else linear.weight.dtype
