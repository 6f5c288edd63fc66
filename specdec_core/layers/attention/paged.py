"""Attention that reads the blocks of the cache in place: torch.nn.attention.varlen.

Shape legend: T tokens of the pass, P rows of attention, H query heads, K key-value heads, D head
size, W blocks of a row, N blocks, B tokens of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from specdec_core.host_copies import to_device
from specdec_core.layers.attention.metadata import AttentionMetadata, KVBlocks

_CAUSAL = (-1, 0)
"""Window of all keys to the left and none to the right. The last query of a row sees its last
key."""


class BlockRows(NamedTuple):
    """Places of the queries of every row, and the keys that they see. int32."""

    query_ends: Tensor
    """[P + 1] tokens before each row, then all of them."""
    key_counts: Tensor
    """[P] keys that the last query of a row sees."""
    blocks: Tensor
    """[P, W] blocks of every row."""
    max_queries: int
    max_keys: int


class BlockAttention(Protocol):
    """Attention over blocks."""

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        """Attend over pools [N, B, K, D]; return [T, H, D]."""
        ...

    def write(
        self, keys: Tensor, values: Tensor, index_T: Tensor, key_TKD: Tensor, value_TKD: Tensor
    ) -> None:
        """Write new keys and values at `index_T` into pools that have a row for each token."""
        keys.index_copy_(0, index_T, key_TKD)
        values.index_copy_(0, index_T, value_TKD)


class BlockCache(KVBlocks, Protocol):
    """A cache whose blocks are read in place."""

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of a layer, a row for each token."""
        ...


class VarlenAttention(BlockAttention):
    """Attention of torch.nn.attention.varlen. Keys are never split, so that a row's bits do not
    depend on other rows."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(
        self, query_THD: Tensor, keys: Tensor, values: Tensor, rows: BlockRows, scaling: float
    ) -> Tensor:
        output_THD: Tensor = self._function(
            query_THD.contiguous(),
            keys,
            values,
            rows.query_ends,
            None,
            rows.max_queries,
            rows.max_keys,
            scale=scaling,
            window_size=_CAUSAL,
            enable_gqa=query_THD.shape[1] != keys.shape[2],
            seqused_k=rows.key_counts,
            block_table=rows.blocks,
            num_splits=1,
        )
        return output_THD


class BlockPass:
    """One pass over the blocks of a cache; implements AttentionPass."""

    block_pools = None

    def __init__(
        self, plan: AttentionMetadata, rows: BlockRows, kv: BlockCache, attention: BlockAttention
    ) -> None:
        self._plan = plan
        self._rows = rows
        self._kv = kv
        self._attention = attention

    def attend(
        self,
        layer: int,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """See AttentionPass."""
        keys, values = self._kv.pools(layer)
        self._attention.write(keys, values, self._plan.write_index, key_TKD, value_TKD)
        size = self._kv.block_size
        return self._attention(
            query_THD,
            keys.view(-1, size, *keys.shape[1:]),
            values.view(-1, size, *values.shape[1:]),
            self._rows,
            scaling,
        )


def plan_block_rows(plan: AttentionMetadata, device: torch.device) -> BlockRows:
    """Return the rows of a plan that has a table, with any lengths."""
    assert plan.table is not None
    firsts, counts, starts = plan.table.pieces.unbind(1)
    key_counts = starts + counts
    ends = torch.cat([firsts, (firsts + counts)[-1:]])
    return BlockRows(
        query_ends=to_device(ends, device),
        key_counts=to_device(key_counts, device),
        blocks=to_device(plan.table.blocks, device),
        max_queries=int(counts.max()),
        max_keys=int(key_counts.max()),
    )
