"""Our own forward for models of Llama's shape, in fewer and larger operations than transformers'.

Queries, keys and values come from one product, gate and up from another. layers/elementwise.py
computes the operations between the products. With PyTorch's operations the logits are the same
bits. registry.py lists the model types.

On a CPU whose kernels fit, `LlamaCpuModel` runs a whole pass in one call, without Python work per
layer. Every linear of the layers is then a NativeLinear. The bits equal those of the layers one by
one.

Shape legend: T tokens of the pass, E hidden size, H query heads, K key-value heads, D head size, I
width of the MLP, N logits, V vocabulary, X any sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, addressof, c_float, c_int64, c_void_p
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_core.kernels.ops import NativeKernels, load_kernels, suits
from specdec_core.layers.attention.backend import Attention, Pools
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.layers.cpu_linear import NativeLinear, replace_linears
from specdec_core.layers.elementwise import (
    Heads,
    LayerOps,
    NativeOps,
    RMSNorm,
    Rotation,
    TorchOps,
)
from specdec_core.layers.select import device_ops_for
from specdec_core.model import ForwardOutput
from specdec_core.models.registry import LLAMA_MODEL_TYPES


def fuse(model: PreTrainedModel, *, uses_kernels: bool = False) -> PreTrainedModel | LlamaModel:
    """Return `model` as a LlamaModel, which takes its weights and leaves it empty, or as it is.

    The weights move layer by layer, so at most one layer's weights are in memory twice.
    """
    if model.config.model_type not in LLAMA_MODEL_TYPES:
        return model
    if not uses_kernels:
        return LlamaModel(model)
    return LlamaModel(model, _kernels_for(model), device_ops_for(model))


def _kernels_for(model: Any) -> NativeKernels | None:
    """Return the kernels if this machine has them and they support the model, otherwise None."""
    config, is_there = model.config, model.device.type == "cpu" and model.dtype == torch.bfloat16
    head_dim = model.model.layers[0].self_attn.head_dim
    fits = suits(config.hidden_size, config.intermediate_size, head_dim)
    return load_kernels() if is_there and fits and config.hidden_act == "silu" else None


class LlamaLayer(nn.Module):
    """Attention over the cache, then the gated MLP, each after a norm and added to the residual."""

    def __init__(self, layer: Any, config: Any) -> None:
        """Take the weights out of a layer of transformers."""
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim: int = attention.head_dim
        self.scaling: float = attention.scaling
        self.attention_norm = RMSNorm(layer.input_layernorm)
        self.qkv = _join(attention.q_proj, attention.k_proj, attention.v_proj)
        self.query_norm, self.key_norm = (
            RMSNorm(getattr(attention, name)) if hasattr(attention, name) else None
            for name in ("q_norm", "k_norm")
        )
        self.heads = Heads(
            config.num_attention_heads, config.num_key_value_heads, self.query_norm, self.key_norm
        )
        self.output = attention.o_proj
        self.mlp_norm = RMSNorm(layer.post_attention_layernorm)
        self.gate_up = _join(mlp.gate_proj, mlp.up_proj)
        self.activation = mlp.act_fn
        self.down = mlp.down_proj

    def forward(
        self,
        x_TE: Tensor,
        update_TE: Tensor | None,
        rotation: Rotation,
        attend: Callable[[Tensor, Tensor, Tensor, float], Tensor],
        ops: LayerOps,
    ) -> Tensor:
        """Add to `x_TE` in place; return the rest that is still to be added. `attend` is
        Attention.attend over the layer's own pools."""
        heads = self.qkv(ops.add_norm(x_TE, update_TE, self.attention_norm))
        heads_TXD = ops.rotate(heads.view(len(x_TE), -1, self.head_dim), rotation, self.heads)
        sizes = [self.heads.num_query, self.heads.num_key, self.heads.num_key]
        query_THD, key_TKD, value_TKD = torch.split(heads_TXD, sizes, dim=1)
        mixed_THD = attend(query_THD, key_TKD, value_TKD, self.scaling)
        update_TE = self.output(mixed_THD.flatten(1))
        gate_up = self.gate_up(ops.add_norm(x_TE, update_TE, self.mlp_norm))
        product: Tensor = self.down(ops.gate(gate_up, self.activation))
        return product


class LlamaModel(nn.Module):
    """A model of Llama's shape; implements Decoder."""

    def __init__(
        self,
        model: Any,
        kernels: NativeKernels | None = None,
        device_ops: LayerOps | None = None,
    ) -> None:
        """Take the weights out of `model`, which must not be used afterwards. `kernels` are for a
        CPU, `device_ops` for another device."""
        super().__init__()
        body = model.model
        self.config = model.config
        self.kernels = kernels
        plain = TorchOps() if kernels is None else NativeOps(kernels)
        self.ops: LayerOps = device_ops or plain
        self.embedding = body.embed_tokens
        self.rotary = body.rotary_emb
        self.layers = nn.ModuleList()
        while body.layers:
            self.layers.append(LlamaLayer(body.layers.pop(0), model.config))
        self.norm = RMSNorm(body.norm)
        self.head = model.lm_head
        self.requires_grad_(False)
        self._stack: tuple[nn.ModuleList, LlamaCpuModel | None] = (nn.ModuleList(), None)

    def use_native_linears(self) -> None:
        """Use our own matrix product if there are kernels. A pass is then one call."""
        if self.kernels is not None:
            replace_linears(self, self.kernels)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.embedding.weight.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        device: torch.device = self.embedding.weight.device
        return device

    def decode(
        self, metadata: AttentionMetadata, pools: Pools, attention: Attention, taps: tuple[int, ...]
    ) -> ForwardOutput:
        """See Decoder. The whole pass is one call of the CPU's kernels if nothing is tapped."""
        if self.kernels is not None and metadata.rows is not None and not taps:
            if self._stack[0] is not self.layers:  # a twin of the model may have fewer layers
                self._stack = self.layers, stack_of(self.kernels, self)
            if self._stack[1] is not None:
                return ForwardOutput(self._stack[1].run(metadata, pools))
        return self._decode_by_layers(metadata, pools, attention, taps)

    def _decode_by_layers(
        self, metadata: AttentionMetadata, pools: Pools, attention: Attention, taps: tuple[int, ...]
    ) -> ForwardOutput:
        x_TE = self.embedding(metadata.input_ids[0])
        cos_1TD, sin_1TD = self.rotary(x_TE, metadata.position_ids)
        rotation = Rotation(cos_1TD[0], sin_1TD[0])
        update_TE: Tensor | None = None
        tapped: dict[int, Tensor] = {}
        for index, (layer, own) in enumerate(zip(self.layers, pools, strict=True)):
            if index in taps:
                tapped[index] = x_TE.clone() if update_TE is None else x_TE + update_TE
            attend = partial(attention.attend, metadata, own)
            update_TE = layer(x_TE, update_TE, rotation, attend, self.ops)
        assert update_TE is not None, "a model has layers"
        wanted = metadata.logits_index
        logits_NV: Tensor = self.head(self.ops.add_norm(x_TE[wanted], update_TE[wanted], self.norm))
        return ForwardOutput(logits_NV, tuple(tapped[tap] for tap in taps))


def _join(*linears: nn.Linear) -> nn.Linear:
    """Return one linear with the outputs of all, one after another."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    has_bias = linears[0].bias is not None
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=has_bias, device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if has_bias:
        bias = torch.cat([linear.bias.detach() for linear in linears])
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined


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
        for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm"):
            norm: RMSNorm | None = getattr(layer, name)
            setattr(entry, name, None if norm is None else norm.weight.data_ptr())
        for name in ("qkv", "output", "gate_up", "down"):
            _fill_linear(entry, name, getattr(layer, name))
        entry.keys, entry.values = keys.data_ptr(), values.data_ptr()
    return table


def _fill_linear(entry: ctypes.Structure, name: str, linear: NativeLinear) -> None:
    setattr(entry, name, linear.packed.data_ptr())
    setattr(entry, f"{name}_bias", None if linear.bias is None else linear.bias.data_ptr())


def _dense_address(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    return tensor.data_ptr()
