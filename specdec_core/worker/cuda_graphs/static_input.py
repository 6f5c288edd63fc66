"""The numbers that a pass of fixed shape reads: one tensor on the device, filled by one copy.

The pass computes everything else from them on the device: positions, the places to write, and the
mask. So nothing between the copy and the logits depends on the values. Shape legend: R rows, Q
tokens of a row, S blocks of a row, N logits of the pass, B tokens of a block.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.host_copies import copy_without_waiting
from specdec_core.kv_cache.paged import PagedKV
from specdec_core.layers.attention.metadata import append_blocks
from specdec_core.model import ForwardInput
from specdec_core.worker.cuda_graphs.buckets import Bucket


class PassNumbers(NamedTuple):
    """Numbers of a pass, int32. A row that is padding has no tokens and reads the scratch block."""

    starts: Tensor
    """[R] position of a row's first token in its sequence."""
    counts: Tensor
    """[R] number of a row's tokens. The tokens after them are padding."""
    blocks: Tensor
    """[R, S] blocks of each row."""
    wanted: Tensor
    """[N] indices of the tokens whose logits are wanted, in the order of the input."""
    ids: Tensor
    """[R, Q] token IDs."""


class PassBuffers:
    """Memory for all shapes, because one pass runs at a time. If two shapes have equal rows and
    blocks, their `starts`, `counts` and `blocks` are the same memory."""

    def __init__(self, device: torch.device, largest: Bucket) -> None:
        self._numbers = torch.zeros(_size(largest), dtype=torch.int32, device=device)

    def views(self, bucket: Bucket) -> PassNumbers:
        rows, tokens = bucket.rows, bucket.num_tokens
        sizes = [rows, rows, rows * bucket.blocks, bucket.num_logits, tokens]
        starts, counts, blocks, wanted, ids = torch.split(self._numbers[: _size(bucket)], sizes)
        return PassNumbers(
            starts, counts, blocks.view(rows, -1), wanted, ids.view(rows, bucket.queries)
        )

    def clear(self) -> None:
        """Turn all rows into padding. A pass then only writes to the scratch block."""
        self._numbers.zero_()

    def fill(self, numbers: array[int]) -> None:
        """Copy the numbers to the device without waiting for it."""
        target = self._numbers[: len(numbers)]
        copy_without_waiting(torch.frombuffer(numbers, dtype=torch.int32), target)


def pack(batch: ForwardInput, kv: PagedKV, bucket: Bucket) -> array[int]:
    """Return the numbers of a pass, in the order of PassNumbers."""
    assert kv.scratch_block is not None, "padding must read and write somewhere"
    num_missing = bucket.rows - len(batch.slots)
    numbers = array("i", batch.starts)
    numbers.extend([0] * num_missing)
    numbers.extend(batch.token_counts)
    numbers.extend([0] * num_missing)
    append_blocks(numbers, batch.slots, bucket.blocks, kv)
    numbers.extend(array("i", [kv.scratch_block]) * (num_missing * bucket.blocks))
    wanted = _wanted(batch, bucket.queries)
    numbers.extend(wanted)
    numbers.extend([0] * (bucket.num_logits - len(wanted)))
    end = 0
    for count in batch.token_counts:
        start, end = end, end + count
        numbers.extend(batch.token_ids[start:end])
        numbers.extend([0] * (bucket.queries - count))
    numbers.extend([0] * (num_missing * bucket.queries))
    return numbers


def _wanted(batch: ForwardInput, num_queries: int) -> list[int]:
    """Return the indices of the last tokens of every row that wants logits."""
    return [
        row * num_queries + index
        for row, count in enumerate(batch.token_counts)
        for index in range(count - batch.num_logits[row], count)
    ]


def _size(bucket: Bucket) -> int:
    return bucket.rows * (2 + bucket.blocks) + bucket.num_logits + bucket.num_tokens
