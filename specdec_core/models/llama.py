"""Our own forward for models of Llama's shape, in fewer and larger operations than transformers'.

Queries, keys and values come from one product, gate and up from another. layers/elementwise.py
computes the operations between the products. With PyTorch's operations the logits are the same
bits. registry.py lists the model types.

Shape legend: T tokens of the pass, E hidden size, H query heads, K key-value heads, D head size, I
width of the MLP, N logits, V vocabulary, X any sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_core.kernels.ops import NativeKernels, load_kernels, suits
from specdec_core.layers.attention.backend import Attention, Pools
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.layers.cpu_linear import replace_linears
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
from specdec_core.models.llama_cpu import LlamaCpuModel, stack_of
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
        self,
        metadata: AttentionMetadata,
        pools: Pools,
        attention: Attention,
        taps: tuple[int, ...] = (),
    ) -> ForwardOutput:
        """See Decoder. The whole pass is one call of the CPU's kernels if nothing is tapped."""
        if self.kernels is not None and metadata.rows is not None and not taps:
            if self._stack[0] is not self.layers:  # a twin of the model may have fewer layers
                self._stack = self.layers, stack_of(self.kernels, self)
            if self._stack[1] is not None:
                return ForwardOutput(self._stack[1].run(metadata, pools))
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
