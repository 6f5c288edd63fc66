"""Attention of one pass over a left-padded batch: the whole rectangle, or row by start offset.

Fast numerics attend over the rectangle in memory. There the same content gives other bits at
another offset. Exact numerics therefore read every row through its start into a view that begins
with the row's first token. They then continue exactly as over the in-place cache.

Shape legend: T tokens of the pass, B rows of the batch, R rows of a segment, Q queries per row, K
key-value heads, H heads, G = H / K, S columns that are read, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from specdec_core.algorithms.padded.cache import COLUMN_STEP, PaddedKV
from specdec_core.host_copies import on_device
from specdec_core.kernels.ops import NativeKernels
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.metadata import AttentionMetadata
from specdec_core.layers.attention.sdpa import (
    attend_blocks,
    attend_rows,
    attend_segment,
    gather_rows,
)
from specdec_core.model import Feed
from specdec_core.stopwatch import Stopwatch


class RowOffsets:
    """A left-padded batch as a cache of one-token blocks: a row's table begins at its start."""

    block_size = 1

    def __init__(self, kv: PaddedKV) -> None:
        self._kv = kv

    @property
    def shape(self) -> KVShape:
        return self._kv.shape

    def block_table(self, slot: int) -> Sequence[int]:
        first = slot * self._kv.num_columns + self._kv.starts[slot]
        return range(first, first + self._kv.cached_lens[slot])

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._kv.pools(layer)


class OffsetPass:
    """Attention in exact numerics. `view_watch` times the making of the view; kernels need no
    view."""

    def __init__(
        self,
        plan: AttentionMetadata,
        kv: PaddedKV,
        view_watch: Stopwatch,
        kernels: NativeKernels | None = None,
    ) -> None:
        self._plan = plan
        self._kernels = kernels
        self._kv = kv
        self._offsets = RowOffsets(kv)
        self._view_watch = view_watch

    @property
    def block_pools(self) -> None:
        """See AttentionPass."""

    def attend(
        self,
        layer: int,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """See AttentionPass."""
        if self._plan.table is not None:
            pools = self._kv.pools(layer)
            return attend_blocks(
                self._kernels, self._plan, pools, query_THD, key_TKD, value_TKD, scaling
            )
        keys, values = _write(self._kv, layer, self._plan, key_TKD, value_TKD)
        outputs = []
        for segment in self._plan.segments:
            with self._view_watch:
                key_RKSD = gather_rows(keys, segment, self._offsets)
                value_RKSD = gather_rows(values, segment, self._offsets)
            outputs.append(attend_segment(segment, query_THD, key_RKSD, value_RKSD, scaling))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class RectanglePass:
    """Attention in fast numerics: one call over all rows and columns, with hidden columns
    masked."""

    def __init__(
        self, plan: AttentionMetadata, kv: PaddedKV, feeds: Sequence[Feed], num_query_groups: int
    ) -> None:
        """The fed tokens are the last that each row caches."""
        counts = [0] * kv.num_rows
        for feed in feeds:
            counts[feed.slot] = len(feed.tokens)
        self._plan = plan
        self._kv = kv
        self._num_columns = -(-kv.width // COLUMN_STEP) * COLUMN_STEP
        self._num_queries = max(counts)
        is_full = min(counts) == self._num_queries
        self._query_index = None if is_full else _query_index(counts, kv)
        self._mask_B1QS = self._mask(counts).repeat(1, 1, num_query_groups, 1)

    @property
    def block_pools(self) -> None:
        """See AttentionPass."""

    def attend(
        self,
        layer: int,
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        scaling: float,
    ) -> Tensor:
        """See AttentionPass."""
        keys, values = _write(self._kv, layer, self._plan, key_TKD, value_TKD)
        if self._query_index is not None:
            num_queries = self._kv.num_rows * self._num_queries
            padded_THD = query_THD.new_zeros(num_queries, *query_THD.shape[1:])
            query_THD = padded_THD.index_copy_(0, self._query_index, query_THD)
        output_THD = attend_rows(
            query_THD, self._rectangle(keys), self._rectangle(values), self._mask_B1QS, scaling
        )
        if self._query_index is not None:
            output_THD = output_THD.index_select(0, self._query_index)
        return output_THD

    def _rectangle(self, pool: Tensor) -> Tensor:
        """Return the pool as [B, K, S, D], a view."""
        rows_BSKD = pool.view(self._kv.num_rows, -1, *pool.shape[1:])
        return rows_BSKD[:, : self._num_columns].transpose(1, 2)

    def _mask(self, counts: Sequence[int]) -> Tensor:
        """Return the mask: 0 where a query sees a column, -inf elsewhere. A query sees its row's
        content up to its own position."""
        shape = self._kv.shape
        first = [n - count for n, count in zip(self._kv.cached_lens, counts, strict=True)]
        first_B1 = on_device(first, torch.long, shape.device).unsqueeze(1)
        query_BQ1 = (first_B1 + torch.arange(self._num_queries, device=shape.device)).unsqueeze(2)
        column_B1S = self._kv.places(self._num_columns).unsqueeze(1)
        hidden_BQS = (column_B1S < 0) | (column_B1S > query_BQ1)
        mask_BQS = torch.zeros(hidden_BQS.shape, dtype=shape.dtype, device=shape.device)
        return mask_BQS.masked_fill_(hidden_BQS, float("-inf")).unsqueeze(1)


def plan_rectangle(kv: PaddedKV, feeds: Sequence[Feed]) -> AttentionMetadata:
    """Return the pass that feeds every row its tokens, which `kv` counts as cached already."""
    device = kv.shape.device
    write_index = on_device(_columns(kv, feeds), torch.long, device)
    ends = accumulate(len(feed.tokens) for feed in feeds)
    wanted = [
        index
        for feed, end in zip(feeds, ends, strict=True)
        for index in range(end - feed.num_logits, end)
    ]
    tokens = [token for feed in feeds for token in feed.tokens]
    return AttentionMetadata(
        input_ids=on_device(tokens, torch.long, device).unsqueeze(0),
        position_ids=kv.places(kv.num_columns).flatten()[write_index].unsqueeze(0),
        write_index=write_index,
        logits_index=on_device(wanted, torch.long, device),
    )


def _columns(kv: PaddedKV, feeds: Sequence[Feed]) -> list[int]:
    """Return the places of the fed tokens in a layer's pool."""
    ends = kv.ends
    last = [feed.slot * kv.num_columns + ends[feed.slot] for feed in feeds]
    return [
        column
        for feed, end in zip(feeds, last, strict=True)
        for column in range(end - len(feed.tokens), end)
    ]


def _query_index(counts: Sequence[int], kv: PaddedKV) -> Tensor:
    """Return the padded query of every token."""
    num_queries = max(counts)
    queries = [row * num_queries + i for row, count in enumerate(counts) for i in range(count)]
    return on_device(queries, torch.long, kv.shape.device)


def _write(
    kv: PaddedKV, layer: int, plan: AttentionMetadata, key_TKD: Tensor, value_TKD: Tensor
) -> tuple[Tensor, Tensor]:
    """Cache the new keys and values of a layer; return its pools."""
    keys, values = kv.pools(layer)
    keys.index_copy_(0, plan.write_index, key_TKD)
    values.index_copy_(0, plan.write_index, value_TKD)
    return keys, values
