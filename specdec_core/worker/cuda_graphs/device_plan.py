"""Metadata of a pass of fixed shape, computed on the device from the pass's numbers.

Shape legend: R rows, Q tokens of a row, S keys of a row, B tokens of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.kernels.ops import BlockRows
from specdec_core.kv_cache.paged import PagedKV
from specdec_core.layers.attention.backend import Attention
from specdec_core.layers.attention.metadata import AttentionMetadata, Segment, causal_mask
from specdec_core.models.base import Decoder
from specdec_core.worker.cuda_graphs.buckets import Bucket
from specdec_core.worker.cuda_graphs.static_input import PassNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticModel:
    """Parts of a model that passes of fixed shape need."""

    decoder: Decoder
    kv: PagedKV
    """Cache with a scratch block, where padding reads and writes."""
    num_query_groups: int
    logits_width: int
    """V, including padded IDs."""
    max_model_len: int
    max_choices: int
    """Maximum tokens that one call samples. Passes that want more logits are not recorded."""
    attention: Attention
    reads_blocks: bool
    """True if `attention` reads the blocks in place. False if it gathers them."""


def device_plan(numbers: PassNumbers, bucket: Bucket, model: StaticModel) -> AttentionMetadata:
    """Return metadata of equally long rows: one segment, or block rows if blocks are read in
    place. Reads no number on the host."""
    position_RQ, write_RQ = _positions(numbers, model.kv)
    return AttentionMetadata(
        input_ids=numbers.ids.long().view(1, -1),
        position_ids=position_RQ.view(1, -1),
        write_index=write_RQ.view(-1),
        logits_index=numbers.wanted.long(),
        block_size=model.kv.block_size,
        segments=() if model.reads_blocks else (_segment(position_RQ, numbers, model),),
        rows=_block_rows(numbers, bucket, model.kv) if model.reads_blocks else None,
    )


def _block_rows(numbers: PassNumbers, bucket: Bucket, kv: PagedKV) -> BlockRows:
    """Return block rows with an equal number of queries. Queries of the padding see keys after the
    row's end."""
    ends = torch.arange(bucket.rows + 1, dtype=torch.int32, device=kv.shape.device)
    return BlockRows(
        query_ends=ends * bucket.queries,
        key_counts=numbers.starts + bucket.queries,
        blocks=numbers.blocks,
        max_queries=bucket.queries,
        max_keys=bucket.blocks * kv.block_size,
    )


def _segment(position_RQ: Tensor, numbers: PassNumbers, model: StaticModel) -> Segment:
    num_keys = numbers.blocks.shape[1] * model.kv.block_size
    mask = causal_mask(position_RQ, num_keys, model.num_query_groups, model.kv.shape.dtype)
    return Segment(query_index=None, block_index=numbers.blocks.long().view(-1), mask=mask)


def _positions(numbers: PassNumbers, kv: PagedKV) -> tuple[Tensor, Tensor]:
    """Return the position of every token in its sequence, and the row of the pools that it writes.

    A padded token has the position of its row's last token, and writes to the scratch block.
    """
    assert kv.scratch_block is not None, "padding must read and write somewhere"
    offset_Q = torch.arange(numbers.ids.shape[1], device=kv.shape.device)
    start_R1, count_R1 = numbers.starts.long()[:, None], numbers.counts.long()[:, None]
    position_RQ = (start_R1 + torch.minimum(offset_Q, count_R1 - 1)).clamp_(min=0)
    block_RQ = numbers.blocks.long().gather(1, position_RQ // kv.block_size)
    row_RQ = block_RQ * kv.block_size + position_RQ % kv.block_size
    scratch_Q = kv.scratch_block * kv.block_size + offset_Q % kv.block_size
    return position_RQ, torch.where(offset_Q < count_R1, row_RQ, scratch_Q)
