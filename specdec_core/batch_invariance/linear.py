"""Linear layers that are only called with row counts of one bit class.

The classes are found at load by measuring, on this machine and with this process's threads. A
library chooses its kernel, blocking and summation order for M rows itself, and its choice changes
with every version. Shape legend: M rows of a call, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeGuard

import torch
from torch import Tensor, nn

from specdec_core.batch_invariance.module import ExactModule, plain_modules
from specdec_core.batch_invariance.size_classes import SizeSet, cheapest_run, fastest_class
from specdec_core.errors import NotExactError
from specdec_core.layers.attention.metadata import SizeRange
from specdec_core.layers.packed_linear import PackedLinear

_MAX_ROWS = {"cpu": 128, "cuda": 640}
"""Maximum row counts tried at load. More rows run in several calls of equal size, which compute
longer than they read weights. On a GPU 128 sequences of K = 8 take two calls. A search up to their
1,152 rows would take 3.2 times as long."""
_MAX_ROWS_LARGE = {"cpu": 32, "cuda": 640}
_MIN_ROWS_COMPARED = 32
"""Minimum rows that are compared, even for calls of one row. A difference may not show in every
row."""
_MIN_ROWS_COMPARED_LARGE = 8
_LARGE_WEIGHT = 1 << 24
"""Above this number of weights, fewer rows are tried on a CPU. Otherwise loading would take
seconds."""

_TYPICAL_ROWS = (1, 8, 40)
_CALL_COST = 16
"""Rows whose arithmetic takes as long as reading the weights, or less."""
_TYPICAL_ROWS_GPU = (1, 8, 40, 128, 640, 4096)
_CALL_COST_GPU = 256
"""Rows for a GPU, which computes while it reads. By its data sheet an H100 computes 295 rows in
bfloat16 in that time."""
_PROBE_BLOCK = 512
"""Outputs of a probe that have their own weights. Later outputs repeat these weights."""

Linear = nn.Linear | PackedLinear
LinearClasses = tuple[tuple[str, SizeSet], ...]
"""The class of every shape of linear of a model, sorted."""


class ExactLinear(ExactModule):
    """Calls `plain` only with the row counts in `rows`, so that other rows never change a row's
    bits."""

    plain: Linear

    def __init__(self, linear: Linear, rows: SizeSet) -> None:
        super().__init__(linear)
        self.rows = rows

    def __str__(self) -> str:
        plain = self.plain
        return f"linear {plain.in_features}x{plain.out_features}, {self.rows} rows"

    def forward(self, input: Tensor) -> Tensor:
        num_rows = input.numel() // input.shape[-1]
        if num_rows == 0 or self._is_whole(num_rows):
            output: Tensor = self.plain(input)
            return output
        flat_MI = input.reshape(num_rows, -1)
        num_calls = -(-num_rows // self.rows.high)
        tiles = [self._call(tile) for tile in flat_MI.tensor_split(num_calls)]
        output = tiles[0] if num_calls == 1 else torch.cat(tiles)
        return output.view(*input.shape[:-1], -1)

    def _is_whole(self, num_rows: int) -> bool:
        return num_rows <= self.rows.high and self.rows.fit(num_rows) == num_rows

    def _call(self, tile_MI: Tensor) -> Tensor:
        num_missing = self.rows.fit(tile_MI.shape[0]) - tile_MI.shape[0]
        if num_missing <= 0:
            output: Tensor = self.plain(tile_MI)
            return output
        padding = tile_MI.new_zeros(num_missing, tile_MI.shape[1])
        padded: Tensor = self.plain(torch.cat([tile_MI, padding]))
        return padded[: tile_MI.shape[0]]


@torch.inference_mode()
def make_linears_exact(model: nn.Module) -> LinearClasses:
    """Wrap the linears of `model`, which may be wrapped already. Return the class of every linear
    shape.

    Takes memory for a second copy of the largest linear. On a GPU it runs before the cache is made,
    which takes the rest. If a linear has no class, raises NotExactError before any is wrapped.
    """
    by_shape = {
        _shape_name(module.plain): module.rows
        for module in model.modules()
        if isinstance(module, ExactLinear)
    }
    linears = list(plain_modules(model, _is_linear))
    for _, linear in linears:
        shape = _shape_name(linear)
        if shape not in by_shape:
            by_shape[shape] = _searched(linear)
    for name, linear in linears:
        model.set_submodule(name, ExactLinear(linear, by_shape[_shape_name(linear)]))
    return tuple(sorted(by_shape.items()))


def _searched(linear: Linear) -> SizeSet:
    try:
        return find_row_range(linear)
    except torch.OutOfMemoryError as error:
        raise NotExactError(
            f"not enough memory to find the size classes of linear {_shape_name(linear)}: {error}"
        ) from error


def _is_linear(module: nn.Module) -> TypeGuard[Linear]:
    return isinstance(module, Linear)


@torch.inference_mode()
def find_row_range(linear: Linear) -> SizeSet:
    """Return the row counts for which every row of such a linear has the same bits.

    Every row count is tried, with every row at two places. The weights are synthetic. The terms of
    every sum cancel, so only rounding remains and each change of order shows. With real weights it
    would show in one row of a hundred.
    """
    generator = torch.Generator().manual_seed(0)
    probe = _cancelling_linear(linear, generator)
    device_type = _device(linear).type
    is_large = linear.in_features * linear.out_features > _LARGE_WEIGHT
    num_rows = (_MAX_ROWS_LARGE if is_large else _MAX_ROWS)[device_type]
    is_short = is_large and device_type == "cpu"
    min_rows = _MIN_ROWS_COMPARED_LARGE if is_short else _MIN_ROWS_COMPARED
    rows_MI = _cancelling_rows(linear, num_rows, generator)
    sizes = range(1, num_rows + 1)
    results = (_result_in_calls_of(probe, rows_MI, size, min_rows) for size in sizes)
    if device_type == "cpu":
        agree = [_agree(shorter, longer) for shorter, longer in pairwise(results)]
        return SizeSet((cheapest_run(agree, _TYPICAL_ROWS, _CALL_COST),))
    classes = _classes_of(results, min_rows)
    if not classes:
        raise NotExactError(
            f"in linear {_shape_name(linear)}, a row's bits depend on the other rows at every "
            "number of rows"
        )
    return fastest_class(classes, _TYPICAL_ROWS_GPU, _CALL_COST_GPU)


def _classes_of(results: Iterable[Tensor | None], min_rows: int) -> list[SizeSet]:
    """Return the sizes 1, 2, ... grouped by their bits.

    A GPU's kernels return to an earlier order at other sizes. A class with small and large sizes
    neither pads few rows much nor reads the weights twice. Neighbours are compared in all rows,
    others in the first `min_rows`.
    """
    firsts: list[Tensor] = []
    ranges: list[list[SizeRange]] = []
    previous: Tensor | None = None
    current = 0
    for size, result in enumerate(results, start=1):
        if _agree(previous, result):
            ranges[current][-1] = SizeRange(ranges[current][-1].low, size)
        elif result is not None:
            current = _index_of(result[:min_rows], firsts)
            ranges += [[] for _ in firsts[len(ranges) :]]
            ranges[current].append(SizeRange(size, size))
        previous = result
    return [SizeSet(tuple(some)) for some in ranges]


def _index_of(first: Tensor, firsts: list[Tensor]) -> int:
    """Return the index of equal bits in `firsts`. If they are new, append them."""
    index = next((i for i, other in enumerate(firsts) if torch.equal(other, first)), len(firsts))
    if index == len(firsts):
        firsts.append(first.clone())
    return index


def _result_in_calls_of(probe: Linear, rows_MI: Tensor, size: int, min_rows: int) -> Tensor | None:
    """Return the first rows' outputs by calls of `size` rows, or None if a row's place changes
    bits."""
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
    """Return a linear like the given one, whose columns come in pairs of equal weights.

    A kernel depends on the whole shape, so the linear has all outputs. Only a block of them is made
    on the host, because a large head would take gigabytes there.
    """
    half, outputs = linear.in_features // 2, linear.out_features
    block_OI = torch.zeros(min(outputs, _PROBE_BLOCK), linear.in_features)
    paired = torch.randn(len(block_OI), half, generator=generator)
    order = _pair_order(linear.in_features)
    block_OI[:, order[:half]] = paired
    block_OI[:, order[half : 2 * half]] = paired
    block_OI = block_OI.to(_device(linear), _dtype(linear))
    weight_OI = block_OI.new_empty(outputs, linear.in_features)
    for start in range(0, outputs, _PROBE_BLOCK):
        some_OI = weight_OI[start : start + _PROBE_BLOCK]
        some_OI.copy_(block_OI[: len(some_OI)])
    has_bias = linear.bias is not None
    probe = nn.Linear(linear.in_features, outputs, bias=has_bias, device="meta")
    probe.weight = nn.Parameter(weight_OI, requires_grad=False)
    if has_bias:
        probe.bias = nn.Parameter(block_OI.new_zeros(outputs), requires_grad=False)
    return PackedLinear(probe) if isinstance(linear, PackedLinear) else probe


def _cancelling_rows(linear: Linear, num_rows: int, generator: torch.Generator) -> Tensor:
    """Return rows whose numbers come in pairs of opposite sign where the weights are equal."""
    half = linear.in_features // 2
    paired = torch.randn(num_rows, half, generator=generator)
    rows_MI = torch.zeros(num_rows, linear.in_features)
    order = _pair_order(linear.in_features)
    rows_MI[:, order[:half]] = paired
    rows_MI[:, order[half : 2 * half]] = -paired
    return rows_MI.to(_device(linear), _dtype(linear))


def _pair_order(num_inputs: int) -> Tensor:
    """Return the places of the halves of the pairs. Entry i of the first half pairs with i of the
    second."""
    return torch.randperm(num_inputs, generator=torch.Generator().manual_seed(num_inputs))


def _shape_name(linear: Linear) -> str:
    bias = "+bias" if linear.bias is not None else ""
    return f"{linear.in_features}x{linear.out_features}{bias}"


def _device(linear: Linear) -> torch.device:
    return torch.device("cpu") if isinstance(linear, PackedLinear) else linear.weight.device


def _dtype(linear: Linear) -> torch.dtype:
    return linear.dtype if isinstance(linear, PackedLinear) else linear.weight.dtype
