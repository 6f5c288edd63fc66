"""Attention of one flat, ragged pass over the paged cache.

Shape legend: T tokens of the pass, R rows of a segment, Q queries per row, K key-value heads, G
query heads per key-value head, H = K * G, S keys per row, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specdec_core.errors import ModelNotSupportedError
from specdec_core.kernels.ops import NativeKernels
from specdec_core.kv_cache.paged import PagedKV
from specdec_core.layers.attention.metadata import AttentionMetadata, KVBlocks, Segment


class AttentionPass(Protocol):
    """One forward pass, as the attention of every layer sees it."""

    @property
    def block_pools(self) -> Sequence[tuple[Tensor, Tensor]] | None:
        """Keys and values of every layer, always the same object. None if the caller must call
        `attend` layer by layer."""
        ...

    def attend(
        self,
        layer: int,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """Cache the new keys and values of a layer, then attend; return [T, H, D]."""
        ...


class RaggedPass:
    """One pass's plan over the cache. The attention of every layer goes through `attend`."""

    def __init__(
        self, plan: AttentionMetadata, kv: PagedKV, kernels: NativeKernels | None = None
    ) -> None:
        """`kernels` run a plan that has a table."""
        self._plan = plan
        self._kv = kv
        self._kernels = kernels

    @property
    def block_pools(self) -> Sequence[tuple[Tensor, Tensor]] | None:
        """See AttentionPass."""
        return None if self._plan.table is None else self._kv.all_pools

    def attend(
        self,
        layer: int,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """Cache the new keys and values of a layer, then attend; return [T, H, D]."""
        self._check(key_TKD, value_TKD)
        keys, values = self._kv.pools(layer)
        if self._plan.table is not None:
            return attend_blocks(
                self._kernels, self._plan, (keys, values), query_THD, key_TKD, value_TKD, scaling
            )
        keys.index_copy_(0, self._plan.write_index, key_TKD)
        values.index_copy_(0, self._plan.write_index, value_TKD)
        outputs = [
            _attend_segment(segment, query_THD, keys, values, self._kv, scaling)
            for segment in self._plan.segments
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _check(self, key_TKD: Tensor, value_TKD: Tensor) -> None:
        shape = self._kv.shape
        num_tokens = self._plan.write_index.shape[0]
        expected = (num_tokens, shape.num_kv_heads, shape.head_dim)
        if key_TKD.shape != expected or value_TKD.shape != expected:
            raise ModelNotSupportedError(
                f"keys of shape {tuple(key_TKD.shape)} and values of {tuple(value_TKD.shape)} "
                f"where the model's configuration promises {expected}"
            )


def attend_blocks(
    kernels: NativeKernels | None,
    plan: AttentionMetadata,
    pools: tuple[Tensor, Tensor],
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    scaling: float,
) -> Tensor:
    """Cache the new keys and values and attend to the blocks in place; return [T, H, D]."""
    assert kernels is not None
    assert plan.table is not None
    return kernels.attend(
        query_THD, key_TKD, value_TKD, pools, plan.write_index, plan.table, scaling
    )


def _attend_segment(
    segment: Segment,
    query_THD: Tensor,
    keys: Tensor,
    values: Tensor,
    kv: PagedKV,
    scaling: float,
) -> Tensor:
    """Return the output for the tokens of the segment, [T, H, D]."""
    key_RKSD, value_RKSD = gather_rows(keys, segment, kv), gather_rows(values, segment, kv)
    return attend_segment(segment, query_THD, key_RKSD, value_RKSD, scaling)


def attend_segment(
    segment: Segment, query_THD: Tensor, key_RKSD: Tensor, value_RKSD: Tensor, scaling: float
) -> Tensor:
    """Attend with the segment's queries of the pass over its gathered rows; return [T, H, D] of its
    tokens."""
    query_THD = query_THD.narrow(0, segment.first_token, segment.num_tokens)
    if segment.query_index is not None:
        query_THD = query_THD.index_select(0, segment.query_index)
    output_THD = attend_rows(query_THD, key_RKSD, value_RKSD, segment.mask, scaling)
    if segment.token_index is not None:
        output_THD = output_THD.index_select(0, segment.token_index)
    return output_THD


def attend_rows(
    query_THD: Tensor, key_RKSD: Tensor, value_RKSD: Tensor, mask_R1QS: Tensor, scaling: float
) -> Tensor:
    """Return the attention of R rows with T / R queries each over S keys per row, [T, H, D].

    The mask is additive, and its Q axis counts G * T / R folded queries. Heads that share keys
    become additional queries. So keys are read once per group, and one query is no special case.
    """
    num_rows, num_kv_heads = key_RKSD.shape[:2]
    output_RKQD = scaled_dot_product_attention(
        _fold_groups(query_THD, num_rows, num_kv_heads),
        key_RKSD,
        value_RKSD,
        attn_mask=mask_R1QS,
        scale=scaling,
    )
    return _unfold_groups(output_RKQD, query_THD.shape[0] // num_rows)


def _fold_groups(query_THD: Tensor, num_rows: int, num_kv_heads: int) -> Tensor:
    """[R * Q, H, D] -> [R, K, G * Q, D]."""
    num_tokens, num_heads, head_dim = query_THD.shape
    shape = (num_rows, num_tokens // num_rows, num_kv_heads, num_heads // num_kv_heads, head_dim)
    return query_THD.view(shape).permute(0, 2, 3, 1, 4).flatten(2, 3)


def _unfold_groups(output_RKQD: Tensor, num_queries: int) -> Tensor:
    """[R, K, G * Q, D] -> [R * Q, H, D], the way back."""
    num_rows, num_kv_heads, num_folded, head_dim = output_RKQD.shape
    shape = (num_rows, num_kv_heads, num_folded // num_queries, num_queries, head_dim)
    return output_RKQD.view(shape).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)


def gather_rows(pool: Tensor, segment: Segment, kv: KVBlocks) -> Tensor:
    """Return the rows' keys or values, [R, K, S, D].

    Whole blocks are copied, in 8-byte words. A step takes 3.3 ms; with bf16 elements it takes 4.9
    ms (8 rows of 500 tokens, 30 layers, 3 heads of 64, 2 threads).
    """
    blocks = pool.view(pool.shape[0] // kv.block_size, -1).view(torch.int64)
    rows = blocks.index_select(0, segment.block_index).view(kv.shape.dtype)
    num_keys = segment.mask.shape[-1]
    shape = (-1, num_keys, kv.shape.num_kv_heads, kv.shape.head_dim)
    return rows.view(shape).transpose(1, 2).expand(segment.num_rows, -1, -1, -1)
