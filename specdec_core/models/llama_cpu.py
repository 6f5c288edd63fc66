"""A whole pass in one call of the kernels, without Python work per layer.

It requires that every linear of the layers is a NativeLinear. The bits equal those of the layers
one by one. Shape legend as in kernels/csrc/kernels.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, addressof, c_float, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from specdec_core.kernels.ops import NativeKernels
from specdec_core.layers.attention.backend import Pools
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.layers.cpu_linear import NativeLinear
from specdec_core.layers.elementwise import Heads, RMSNorm

_TILE_ROWS = 16
_FEWEST_ROWS = 64


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


class _Model(ctypes.Structure):
    """`Model` of kernels.c."""

    _fields_ = (
        ("layers", POINTER(_Layer)),
        *((name, c_void_p) for name in ("embedding", "norm", "head", "head_bias")),
        *((name, c_void_p) for name in ("x", "update", "normed", "heads", "mixed", "gated")),
        *((name, c_int64) for name in ("num_layers", "width", "mlp_width", "num_heads")),
        *((name, c_int64) for name in ("key_heads", "size", "vocabulary")),
        *((name, c_float) for name in ("epsilon", "head_epsilon", "scaling")),
    )


class _Pass(ctypes.Structure):
    """`Pass` of kernels.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("ids", "places", "write_index", "wanted")),
        *((name, c_void_p) for name in ("cosine", "sine")),
        *((name, c_void_p) for name in ("query_ends", "key_counts", "tables", "out")),
        *((name, c_int64) for name in ("num_tokens", "num_wanted", "num_pieces")),
        *((name, c_int64) for name in ("table_width", "block_size", "num_threads")),
    )


class LlamaCpuModel:
    """Runs the passes of a LlamaModel."""

    def __init__(self, kernels: NativeKernels, decoder: Any) -> None:
        first: Any = decoder.layers[0]
        heads: Heads = first.heads
        self._kernels = kernels
        self._layers: nn.ModuleList = decoder.layers
        self._head: nn.Module = decoder.head
        self._ends_with_logits = isinstance(decoder.head, NativeLinear)
        self._rotary = _RotaryTables(decoder.rotary, decoder.dtype)
        width: int = decoder.embedding.embedding_dim
        mixed_size = heads.num_query * first.head_dim
        self._widths = {
            **{"x": width, "update": width, "normed": width},
            "heads": (heads.num_query + 2 * heads.num_key) * first.head_dim,
            **{"mixed": mixed_size, "gated": first.down.in_features},
        }
        self._out_width: int = decoder.head.out_features if self._ends_with_logits else width
        self._room: list[Tensor] = []
        self._num_rows = 0
        self._pools: Pools = ()
        self._table = (_Layer * 0)()
        self._model = _Model(
            embedding=_dense_address(decoder.embedding.weight),
            norm=_dense_address(decoder.norm.weight),
            num_layers=len(decoder.layers),
            width=width,
            mlp_width=first.down.in_features,
            num_heads=heads.num_query,
            key_heads=heads.num_key,
            size=first.head_dim,
            vocabulary=self._out_width,
            epsilon=decoder.norm.epsilon,
            head_epsilon=0.0 if heads.key_norm is None else heads.key_norm.epsilon,
            scaling=first.scaling,
        )
        if self._ends_with_logits:
            _fill_linear(self._model, "head", decoder.head)
        self._model_at = addressof(self._model)

    def __del__(self) -> None:
        self._kernels.settle()

    def run(self, metadata: AttentionMetadata, pools: Pools) -> Tensor:
        """Cache the tokens of the pass; return the wanted logits, [N, V]."""
        rows = metadata.rows
        assert rows is not None
        num_tokens, num_wanted = metadata.input_ids.shape[1], metadata.logits_index.shape[0]
        if pools is not self._pools:
            self._use_pools(pools)
        if num_tokens > self._num_rows:
            self._make_room(num_tokens)
        if rows.max_keys > self._rotary.count:
            self._kernels.settle()
            self._rotary.grow(rows.max_keys - 1)
        cosine, sine = self._rotary.tables
        out_NX = torch.empty(num_wanted, self._out_width, dtype=torch.bfloat16)
        arguments = _Pass(
            *(metadata.input_ids.data_ptr(), metadata.position_ids.data_ptr()),
            *(metadata.write_index.data_ptr(), metadata.logits_index.data_ptr()),
            *(cosine.data_ptr(), sine.data_ptr(), rows.query_ends.data_ptr()),
            *(rows.key_counts.data_ptr(), rows.blocks.data_ptr(), out_NX.data_ptr()),
            *(num_tokens, num_wanted, *rows.blocks.shape),
            *(metadata.block_size, torch.get_num_threads()),
        )
        self._kernels.run_pass(self._model_at, addressof(arguments))
        logits_NV: Tensor = out_NX if self._ends_with_logits else self._head(out_NX)
        return logits_NV

    def _use_pools(self, pools: Pools) -> None:
        self._kernels.settle()
        self._pools, self._table = pools, _table_of(self._layers, pools)
        self._model.layers = self._table

    def _make_room(self, num_tokens: int) -> None:
        """Allocate whole tiles of rows. Products read all rows of a tile and discard the results of
        the unused ones."""
        self._kernels.settle()
        num_rows = -(-max(num_tokens, _FEWEST_ROWS) // _TILE_ROWS) * _TILE_ROWS
        self._room = [
            torch.zeros(num_rows, width, dtype=torch.bfloat16) for width in self._widths.values()
        ]
        for name, tensor in zip(self._widths, self._room, strict=True):
            setattr(self._model, name, _dense_address(tensor))
        self._num_rows = num_rows


class _RotaryTables:
    """The rotary embedding of positions 0, 1, ..., computed once each, [positions, D]."""

    def __init__(self, rotary: Callable[..., tuple[Tensor, Tensor]], dtype: torch.dtype) -> None:
        self._rotary = rotary
        self._numbers = torch.empty(0, dtype=dtype)
        self.count = 0
        """Number of positions whose embedding is computed."""
        self.tables = (self._numbers, self._numbers)
        """Cosine and sine."""

    def grow(self, position: int) -> None:
        """Compute the tables up to `position` at least. The previous tables are freed."""
        self.count = 1 << max(position.bit_length(), 10)
        cosine, sine = self._rotary(self._numbers, torch.arange(self.count).unsqueeze(0))
        self.tables = cosine[0].contiguous(), sine[0].contiguous()


def stack_of(kernels: NativeKernels, decoder: Any) -> LlamaCpuModel | None:
    """Return the decoder in one call if every linear of its layers is ours, otherwise None."""
    linears = (
        linear
        for layer in decoder.layers
        for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)
    )
    are_ours = all(isinstance(linear, NativeLinear) for linear in linears)
    return LlamaCpuModel(kernels, decoder) if are_ours else None


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
        _fill_linear(entry, name, getattr(layer, name))


def _fill_linear(entry: ctypes.Structure, name: str, linear: NativeLinear) -> None:
    setattr(entry, name, linear.packed.data_ptr())
    setattr(entry, f"{name}_bias", None if linear.bias is None else linear.bias.data_ptr())


def _dense_address(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    return tensor.data_ptr()
