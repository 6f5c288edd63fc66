"""All layers of a pass in one call of the kernels: nothing of Python per layer.

Only where every linear is a NativeLinear. The bits are those of the layers one by one. Shape legend
as in kernels.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from specdec_core.models.layer_ops import Heads, RMSNorm, Rotation
from specdec_core.models.native_kernels import NativeKernels
from specdec_core.models.native_linear import NativeLinear
from specdec_core.models.pass_plan import PassPlan

Pools = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of every layer."""


class _Layer(ctypes.Structure):
    """`Layer` of kernels.c."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            *("attention_norm", "qkv", "qkv_bias", "query_norm", "key_norm"),
            *("output", "output_bias", "mlp_norm", "gate_up", "gate_up_bias", "down", "down_bias"),
            *("keys", "values"),
        )
    )


class _Pass(ctypes.Structure):
    """`Pass` of kernels.c."""

    _fields_ = (
        ("layers", POINTER(_Layer)),
        *((name, c_void_p) for name in ("x", "update", "normed", "heads", "mixed")),
        *((name, c_void_p) for name in ("gate_up", "gated", "cosine", "sine")),
        *((name, c_void_p) for name in ("write_index", "pieces", "tables")),
        *((name, c_int64) for name in ("num_layers", "num_tokens", "num_pieces", "table_width")),
        *((name, c_int64) for name in ("block_size", "width", "mlp_width")),
        *((name, c_int64) for name in ("num_heads", "key_heads", "size")),
        *((name, c_float) for name in ("epsilon", "head_epsilon", "scaling")),
    )


class NativeStack:
    """The layers of a FusedDecoder."""

    def __init__(self, kernels: NativeKernels, layers: nn.ModuleList) -> None:
        first: Any = layers[0]
        heads: Heads = first.heads
        self._kernels = kernels
        self._layers = layers
        self._row_size = (heads.num_query + 2 * heads.num_key) * first.head_dim
        self._mixed_size = heads.num_query * first.head_dim
        self._mlp_width: int = first.down.in_features
        self._facts = {
            "num_layers": len(layers),
            "mlp_width": self._mlp_width,
            "num_heads": heads.num_query,
            "key_heads": heads.num_key,
            "size": first.head_dim,
            "epsilon": first.attention_norm.epsilon,
            "head_epsilon": 0.0 if heads.key_norm is None else heads.key_norm.epsilon,
            "scaling": first.scaling,
        }
        self._pools: Pools = ()
        self._table = (_Layer * len(layers))()

    def run(self, x_TE: Tensor, rotation: Rotation, plan: PassPlan, pools: Pools) -> Tensor:
        """Caches the tokens of the pass and changes `x_TE`; returns what is still to be added."""
        assert plan.table is not None
        if pools is not self._pools:
            self._pools, self._table = pools, _table_of(self._layers, pools)
        num_tokens, width = x_TE.shape
        sizes = (width, width, self._row_size, self._mixed_size)
        widths = (*sizes, 2 * self._mlp_width, self._mlp_width)
        room = [torch.empty(num_tokens, size, dtype=x_TE.dtype) for size in widths]
        names = ("update", "normed", "heads", "mixed", "gate_up", "gated")
        tensors = dict(zip(names, room, strict=True), x=x_TE)
        tensors |= {"cosine": rotation.cosine, "sine": rotation.sine}
        tensors |= {"write_index": plan.write_index, "pieces": plan.table.pieces}
        tensors["tables"] = plan.table.blocks
        arguments = _Pass(
            layers=self._table,
            num_tokens=num_tokens,
            num_pieces=plan.table.pieces.shape[0],
            table_width=plan.table.blocks.shape[1],
            block_size=plan.table.block_size,
            width=width,
            **self._facts,
            **{name: _dense_address(tensor) for name, tensor in tensors.items()},
        )
        self._kernels.run_layers(arguments)
        return room[0]


def stack_of(kernels: NativeKernels | None, layers: nn.ModuleList) -> NativeStack | None:
    """The layers in one call, if every linear is ours."""
    if kernels is None:
        return None
    linears = (
        linear
        for layer in layers
        for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)
    )
    are_ours = all(isinstance(linear, NativeLinear) for linear in linears)
    return NativeStack(kernels, layers) if are_ours else None


def _table_of(layers: nn.ModuleList, pools: Pools) -> ctypes.Array[_Layer]:
    table = (_Layer * len(layers))()
    for entry, layer, (keys, values) in zip(table, layers, pools, strict=True):
        _fill(entry, layer)
        entry.keys, entry.values = keys.data_ptr(), values.data_ptr()
    return table


def _fill(entry: _Layer, layer: Any) -> None:
    for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm"):
        norm: RMSNorm | None = getattr(layer, name)
        setattr(entry, name, None if norm is None else norm.weight.data_ptr())
    for name in ("qkv", "output", "gate_up", "down"):
        linear: NativeLinear = getattr(layer, name)
        setattr(entry, name, linear.packed.data_ptr())
        bias = linear.bias
        setattr(entry, f"{name}_bias", None if bias is None else bias.data_ptr())


def _dense_address(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    return tensor.data_ptr()
