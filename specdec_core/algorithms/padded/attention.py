"""Attention of one pass over the whole rectangle of a left-padded batch, in fast numerics.

Its bits depend on the offset of a row's content in the rectangle. Exact numerics therefore read
every row from its first token on, as a cache of one-token blocks, and continue exactly as over the
in-place cache.

Shape legend: B rows of the batch, Q queries per row, K key-value heads, G query heads per key-value
head, S columns that are read, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.algorithms.padded.cache import COLUMN_STEP, PaddedKV
from specdec_core.host_copies import on_device
from specdec_core.layers.attention.metadata import (
    AttentionMetadata,
    KVBlocks,
    Segment,
    additive_mask,
    flat_indices,
)
from specdec_core.layers.attention.sdpa import SdpaAttention
from specdec_core.model import ForwardInput


class RectangleAttention(SdpaAttention):
    """Attention in one call over all rows and columns, with hidden columns masked."""

    def plan(self, batch: ForwardInput, kv: KVBlocks) -> AttentionMetadata:
        """Return metadata with one segment of all rows. The fed tokens are the last that each row
        of `kv`, a PaddedKV, caches."""
        assert isinstance(kv, PaddedKV)
        counts = [0] * kv.num_rows
        for row, count in zip(batch.slots, batch.token_counts, strict=True):
            counts[row] = count
        num_queries = max(counts)
        token_index = [row * num_queries + i for row, n in enumerate(counts) for i in range(n)]
        is_full = min(counts) == num_queries
        padded = _padded(token_index, kv.num_rows * num_queries)
        mask = additive_mask(_hidden(counts, kv), self.num_query_groups, kv.shape.dtype)
        device = kv.shape.device
        return AttentionMetadata(
            *flat_indices(batch, kv),
            segments=[
                Segment(None if is_full else on_device(padded, torch.long, device), None, mask)
            ],
            token_index=None if is_full else on_device(token_index, torch.long, device),
        )

    def keys_of(self, pool: Tensor, segment: Segment, block_size: int) -> Tensor:
        """Return the columns of the pool that the mask covers, [B, K, S, D], a view."""
        num_rows, num_columns = segment.mask.shape[0], segment.mask.shape[-1]
        rows_BSKD = pool.view(num_rows, -1, *pool.shape[1:])
        return rows_BSKD[:, :num_columns].transpose(1, 2)


def _padded(token_index: Sequence[int], num_queries: int) -> list[int]:
    """Return the token of each query. Padding repeats the first token of the pass."""
    tokens = [0] * num_queries
    for token, query in enumerate(token_index):
        tokens[query] = token
    return tokens


def _hidden(counts: Sequence[int], kv: PaddedKV) -> Tensor:
    """Return where a column is hidden from a query, [B, Q, S]. A query sees its row's content up to
    its own position."""
    num_columns = -(-kv.width // COLUMN_STEP) * COLUMN_STEP
    first = [n - count for n, count in zip(kv.cached_lens, counts, strict=True)]
    first_B1 = on_device(first, torch.long, kv.shape.device).unsqueeze(1)
    query_BQ1 = (first_B1 + torch.arange(max(counts), device=kv.shape.device)).unsqueeze(2)
    column_B1S = kv.positions(num_columns).unsqueeze(1)
    return (column_B1S < 0) | (column_B1S > query_BQ1)
