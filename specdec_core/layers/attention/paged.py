"""Attention that reads the blocks of the cache in place: kernels of a GPU or of a CPU.

Shape legend: T tokens of the pass, P rows of attention, H query heads, K key-value heads, D head
size, W blocks of a row, N blocks, B tokens of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from specdec_core.kernels.ops import BlockRows, NativeKernels
from specdec_core.layers.attention.backend import LayerPools
from specdec_core.layers.attention.metadata import (
    AttentionMetadata,
    KVBlocks,
    plan_blocks,
)
from specdec_core.model import ForwardInput

_CAUSAL = (-1, 0)
"""Window of all keys to the left and none to the right. The last query of a row sees its last
key."""


class BlockAttention(Protocol):
    """Kernels of a GPU that read the blocks; implements AttentionBackend."""

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

    def plan(self, batch: ForwardInput, kv: KVBlocks) -> AttentionMetadata:
        """See AttentionBackend."""
        return plan_blocks(batch, kv)

    def attend(
        self,
        metadata: AttentionMetadata,
        pools: LayerPools,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """See Attention."""
        assert metadata.rows is not None
        metadata.check_new_kv(pools[0], key_TKD, value_TKD)
        self.write(*pools, metadata.write_index, key_TKD, value_TKD)
        keys, values = (pool.view(-1, metadata.block_size, *pool.shape[1:]) for pool in pools)
        return self(query_THD, keys, values, metadata.rows, scaling)


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


class CpuAttention:
    """Attention of our kernels for CPUs; implements AttentionBackend."""

    def __init__(self, kernels: NativeKernels) -> None:
        self._kernels = kernels

    plan = staticmethod(plan_blocks)

    def attend(
        self,
        metadata: AttentionMetadata,
        pools: LayerPools,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """See Attention."""
        rows, size = metadata.rows, metadata.block_size
        assert rows is not None
        metadata.check_new_kv(pools[0], key_TKD, value_TKD)
        return self._kernels.attend(
            query_THD, key_TKD, value_TKD, pools, metadata.write_index, rows, size, scaling
        )
