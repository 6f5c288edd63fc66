"""Linear layers over our own matrix product (kernels.c), for CPUs with AMX.

A row's bits are the same in calls of any number of rows, so exact numerics needs no classes of
sizes. Weights are kept in the order in which the product reads them. Shape legend: M rows of a
call, I inputs, O outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specdec_core.models.native_kernels import NativeKernels

_TILE = 32
"""Inputs and outputs come in so many."""


class NativeLinear(nn.Module):
    """Replaces a bfloat16 nn.Linear for inference; keeps no other copy of its weight."""

    def __init__(self, linear: nn.Linear, kernels: NativeKernels) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self._kernels = kernels
        self.packed = _pack(linear.weight.detach())

    def forward(self, input: Tensor) -> Tensor:
        rows_MI = input if input.dim() == 2 else input.reshape(-1, self.in_features)
        output_MO = self._kernels.linear(rows_MI, self.packed, self.bias, self.out_features)
        return output_MO.view(*input.shape[:-1], self.out_features)


@torch.inference_mode()
def replace_linears(model: nn.Module, kernels: NativeKernels) -> int:
    """Replace the linears of `model` that the product can take; returns how many there were."""
    linears = [item for item in model.named_modules() if _is_replaceable(item[1])]
    for name, linear in linears:
        assert isinstance(linear, nn.Linear)
        model.set_submodule(name, NativeLinear(linear, kernels))
    return len(linears)


def _is_replaceable(module: nn.Module) -> bool:
    return (
        type(module) is nn.Linear
        and module.weight.dtype == torch.bfloat16
        and module.in_features % _TILE == 0
        and module.out_features % _TILE == 0
    )


def _pack(weight_OI: Tensor) -> Tensor:
    """[O / 32, I / 32, 2, 16 pairs of inputs, 16 outputs, 2]: tile behind tile."""
    num_outputs, num_inputs = weight_OI.shape
    tiles = weight_OI.view(num_outputs // _TILE, 2, 16, num_inputs // _TILE, 16, 2)
    return tiles.permute(0, 3, 1, 4, 2, 5).contiguous()
