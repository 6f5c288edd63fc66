"""Metadata of a pass of fixed shape, computed on the device from the pass's numbers.

Shape legend: R rows, Q tokens of a row, S keys of a row, B tokens of a block.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.metadata import AttentionMetadata, Segment
from specdec_core.worker.cuda_graphs.buckets import Bucket
from specdec_core.worker.cuda_graphs.static_input import PassNumbers


class Layout(NamedTuple):
    """Facts about the model and its cache that `device_plan` needs."""

    kv: KVShape
    block_size: int
    scratch_block: int
    """Block that belongs to no sequence. Padding writes there."""
    num_query_groups: int
    reads_blocks: bool
    """True if attention reads the blocks in place. Segments and their masks are then not used."""


def device_plan(numbers: PassNumbers, bucket: Bucket, layout: Layout) -> AttentionMetadata:
    """Return a plan with one segment, a full rectangle, or with none if blocks are read in place.
    Reads no number on the host."""
    place_RQ, write_RQ = _places(numbers, bucket, layout)
    return AttentionMetadata(
        input_ids=numbers.ids.long().view(1, -1),
        position_ids=place_RQ.view(1, -1),
        write_index=write_RQ.view(-1),
        logits_index=numbers.wanted.long(),
        segments=() if layout.reads_blocks else (_segment(place_RQ, numbers, bucket, layout),),
    )


def _segment(place_RQ: Tensor, numbers: PassNumbers, bucket: Bucket, layout: Layout) -> Segment:
    return Segment(
        num_rows=bucket.rows,
        num_queries=bucket.queries,
        first_token=0,
        num_tokens=bucket.num_tokens,
        query_index=None,
        token_index=None,
        block_index=numbers.blocks.long().view(-1),
        mask=_mask(place_RQ, bucket.blocks * layout.block_size, layout),
    )


def _places(numbers: PassNumbers, bucket: Bucket, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the position of every token in its sequence, and the row of the pools that it writes.

    A padded token has the position of its row's last token, and writes to the scratch block.
    """
    offset_Q = torch.arange(bucket.queries, device=layout.kv.device)
    start_R1, count_R1 = numbers.starts.long()[:, None], numbers.counts.long()[:, None]
    place_RQ = (start_R1 + torch.minimum(offset_Q, count_R1 - 1)).clamp_(min=0)
    block_RQ = numbers.blocks.long().gather(1, place_RQ // layout.block_size)
    row_RQ = block_RQ * layout.block_size + place_RQ % layout.block_size
    scratch_Q = layout.scratch_block * layout.block_size + offset_Q % layout.block_size
    return place_RQ, torch.where(offset_Q < count_R1, row_RQ, scratch_Q)


def _mask(place_RQ: Tensor, num_keys: int, layout: Layout) -> Tensor:
    """Return the mask, [R, 1, G * Q, S]: 0 where a query sees a key, -inf elsewhere."""
    hidden_RQS = torch.arange(num_keys, device=place_RQ.device) > place_RQ.unsqueeze(-1)
    mask_RQS = torch.zeros(hidden_RQS.shape, dtype=layout.kv.dtype, device=place_RQ.device)
    mask_RQS.masked_fill_(hidden_RQS, float("-inf"))
    return mask_RQS.unsqueeze(1).repeat(1, 1, layout.num_query_groups, 1)
