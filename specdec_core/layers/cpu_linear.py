"""Linear layers over our own matrix product (kernels/products.h), in bfloat16 on a CPU.

A row's bits are the same in calls of any number of rows, so exact numerics needs no size classes.
Weights are stored in the order in which the product reads them. Shape legend: M rows of a call, I
inputs, O outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specdec_core.kernels.ops import NativeKernels
from specdec_core.layers.huge_pages import empty_in_huge_pages

_TILE = 32
"""Inputs and outputs are multiples of this number."""


class NativeLinear(nn.Module):
    """Replaces a bfloat16 nn.Linear for inference; keeps no other copy of its weight."""

    def __init__(self, linear: nn.Linear, kernels: NativeKernels, packed: Tensor) -> None:
        """Take over the bias of `linear`, which may then be freed. `packed` is its weight in the
        product's order."""
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self._kernels = kernels
        self.packed = packed

    def forward(self, input: Tensor) -> Tensor:
        rows_MI = input if input.dim() == 2 else input.reshape(-1, self.in_features)
        output_MO = self._kernels.linear(rows_MI, self.packed, self.bias, self.out_features)
        return output_MO.view(*input.shape[:-1], self.out_features)


@torch.inference_mode()
def replace_linears(model: nn.Module, kernels: NativeKernels) -> int:
    """Replace the linears of `model` that the product supports; return their number.

    Their weights follow each other in memory, in the order in which a pass reads them.
    """
    linears = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and _is_replaceable(module)
    }
    sizes = [linear.weight.numel() for linear in linears.values()]
    room = empty_in_huge_pages(sum(sizes) * torch.bfloat16.itemsize).view(torch.bfloat16)
    for name, out in zip(list(linears), torch.split(room, sizes), strict=True):
        linear = linears.pop(name)  # so that no model is held twice
        packed = _pack(linear.weight.detach(), out)
        model.set_submodule(name, NativeLinear(linear, kernels, packed))
    return len(sizes)


def _is_replaceable(module: nn.Linear) -> bool:
    return (
        type(module) is nn.Linear
        and module.weight.dtype == torch.bfloat16
        and module.in_features % _TILE == 0
        and module.out_features % _TILE == 0
    )


def _pack(weight_OI: Tensor, out: Tensor) -> Tensor:
    """Return [O / 32, I / 2 pairs of inputs, 32 outputs, 2] in `out`, one block after another."""
    num_outputs, num_inputs = weight_OI.shape
    blocks = weight_OI.view(num_outputs // _TILE, _TILE, num_inputs // 2, 2).transpose(1, 2)
    return out.view(blocks.shape).copy_(blocks)
