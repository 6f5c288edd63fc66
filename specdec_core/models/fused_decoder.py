"""Our own forward for models of Llama's shape, in fewer and larger operations than transformers'.

Queries, keys and values come from one product, gate and up from another, norms and rotations take
few steps. Every number is rounded where transformers rounds it: the logits are the same bits.

Shape legend: T tokens of the pass, E hidden size, H query heads, K key-value heads, D head size,
I width of the MLP, N logits, V vocabulary; X any sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from transformers import PreTrainedModel

from specdec_core.models.pass_plan import PassPlan
from specdec_core.models.ragged_attention import AttentionPass

_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types of transformers whose layers compute what FusedLayer does."""


def fuse(model: PreTrainedModel) -> PreTrainedModel | FusedDecoder:
    """`model` as a FusedDecoder, which takes its weights and leaves it empty; else as it is.

    Layer by layer: no more than one layer's weights are in memory twice.
    """
    return FusedDecoder(model) if model.config.model_type in _FAMILIES else model


class RMSNorm(nn.Module):
    """x / rms(x), rounded to the rows' type, then times the weight (arXiv 1910.07467)."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight: nn.Parameter = norm.weight
        self._epsilon: float = norm.variance_epsilon

    def forward(self, rows: Tensor) -> Tensor:
        """Over the last axis of [*X, E]."""
        return rms_norm(rows, rows.shape[-1:], None, self._epsilon).mul_(self.weight)


class FusedLayer(nn.Module):
    """Attention over the cache, then the gated MLP, each behind a norm and beside the residual."""

    def __init__(self, layer: Any, config: Any) -> None:
        """Takes the weights out of a layer of transformers."""
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.layer_idx: int = attention.layer_idx
        self.head_dim: int = attention.head_dim
        self.scaling: float = attention.scaling
        self.num_heads: int = config.num_attention_heads
        self.num_kv_heads: int = config.num_key_value_heads
        self.attention_norm = RMSNorm(layer.input_layernorm)
        self.qkv = _join(attention.q_proj, attention.k_proj, attention.v_proj)
        names = [name for name in ("q_norm", "k_norm") if hasattr(attention, name)]
        self.head_norms = nn.ModuleList(RMSNorm(getattr(attention, name)) for name in names)
        self.output = attention.o_proj
        self.mlp_norm = RMSNorm(layer.post_attention_layernorm)
        self.gate_up = _join(mlp.gate_proj, mlp.up_proj)
        self.activation = mlp.act_fn
        self.down = mlp.down_proj

    def forward(
        self, x_TE: Tensor, cos_T1D: Tensor, sin_T1D: Tensor, attention_pass: AttentionPass
    ) -> Tensor:
        query_THD, key_TKD, value_TKD = self._heads(self.attention_norm(x_TE), cos_T1D, sin_T1D)
        mixed_THD = attention_pass.attend(
            self.layer_idx, query_THD, key_TKD, value_TKD, self.scaling
        )
        x_TE = self.output(mixed_THD.flatten(1)).add_(x_TE)
        gate_TI, up_TI = self.gate_up(self.mlp_norm(x_TE)).chunk(2, dim=-1)
        product: Tensor = self.down(self.activation(gate_TI).mul_(up_TI))
        return product.add_(x_TE)

    def _heads(
        self, x_TE: Tensor, cos_T1D: Tensor, sin_T1D: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, turned to their places, and values."""
        heads = self.qkv(x_TE).view(len(x_TE), -1, self.head_dim)
        sizes = [self.num_heads, self.num_kv_heads]
        turned, value_TKD = torch.split(heads, [sum(sizes), self.num_kv_heads], dim=1)
        if self.head_norms:
            parts = zip(self.head_norms, torch.split(turned, sizes, dim=1), strict=True)
            turned = torch.cat([norm(part) for norm, part in parts], dim=1)
        query_THD, key_TKD = torch.split(_turn(turned, cos_T1D, sin_T1D), sizes, dim=1)
        return query_THD, key_TKD, value_TKD


class FusedDecoder(nn.Module):
    """A model of Llama's shape; implements Decoder."""

    def __init__(self, model: Any) -> None:
        """Takes the weights out of `model`, which is of no use afterwards."""
        super().__init__()
        body = model.model
        self.config = model.config
        self.embedding = body.embed_tokens
        self.rotary = body.rotary_emb
        self.layers = nn.ModuleList()
        while body.layers:
            self.layers.append(FusedLayer(body.layers.pop(0), model.config))
        self.norm = RMSNorm(body.norm)
        self.head = model.lm_head
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.embedding.weight.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        device: torch.device = self.embedding.weight.device
        return device

    def decode(self, plan: PassPlan, attention_pass: AttentionPass) -> Tensor:
        """See Decoder."""
        x_TE = self.embedding(plan.input_ids[0])
        cos_1TD, sin_1TD = self.rotary(x_TE, plan.position_ids)
        cos_T1D, sin_T1D = cos_1TD[0].unsqueeze(1), _turned_sine(sin_1TD[0]).unsqueeze(1)
        for layer in self.layers:
            x_TE = layer(x_TE, cos_T1D, sin_T1D, attention_pass)
        logits_NV: Tensor = self.head(self.norm(x_TE[plan.logits_index]))
        return logits_NV


def _turn(heads: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    """Rotary position embedding (arXiv 2104.09864) of [T, X, D]; number i pairs with i + D / 2."""
    first, second = heads.chunk(2, dim=-1)
    swapped = torch.cat([second, first], dim=-1)
    return (heads * cos_T1D).add_(swapped.mul_(sin_T1D))


def _turned_sine(sin_TD: Tensor) -> Tensor:
    """The sine with the sign that it has where the halves are swapped without one."""
    first, second = sin_TD.chunk(2, dim=-1)
    return torch.cat([-first, second], dim=-1)


def _join(*linears: nn.Linear) -> nn.Linear:
    """One linear with the outputs of all, behind each other."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    has_bias = linears[0].bias is not None
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=has_bias, device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if has_bias:
        bias = torch.cat([linear.bias.detach() for linear in linears])
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined
