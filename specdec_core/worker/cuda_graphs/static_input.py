"""The numbers that a pass of fixed shape reads: one tensor on the device, filled by one copy.

The pass computes everything else from them on the device: positions, the places to write, and the
mask. So nothing between the copy and the logits depends on the values. Shape legend: R rows, Q
tokens of a row, S blocks of a row, N logits of the pass, B tokens of a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.host_copies import copy_without_waiting
from specdec_core.layers.attention.metadata import KVBlocks, Piece
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
    """[N] indices of the tokens whose logits are wanted, in the order of the feeds."""
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


def pack(pieces: Sequence[Piece], kv: KVBlocks, bucket: Bucket, scratch_block: int) -> array[int]:
    """Return the numbers of a pass, in the order of PassNumbers."""
    num_missing = bucket.rows - len(pieces)
    numbers = array("i", [piece.start for piece in pieces])
    numbers.extend([0] * num_missing)
    numbers.extend([len(piece.tokens) for piece in pieces])
    numbers.extend([0] * num_missing)
    _append_blocks(numbers, pieces, kv, bucket.blocks)
    numbers.extend(array("i", [scratch_block]) * (num_missing * bucket.blocks))
    wanted = _wanted(pieces, bucket.queries)
    numbers.extend(wanted)
    numbers.extend([0] * (bucket.num_logits - len(wanted)))
    for piece in pieces:
        numbers.extend(piece.tokens)
        numbers.extend([0] * (bucket.queries - len(piece.tokens)))
    numbers.extend([0] * (num_missing * bucket.queries))
    return numbers


def _append_blocks(numbers: array[int], pieces: Sequence[Piece], kv: KVBlocks, width: int) -> None:
    """Append the block tables, each padded with its row's own last block. Reads of the padding are
    masked, but 0 * NaN is NaN, and a NaN that another request left must not spread."""
    for piece in pieces:
        table = kv.block_table(piece.slot)[:width]
        numbers.extend(table)
        numbers.extend(array("i", table[-1:]) * (width - len(table)))


def _wanted(pieces: Sequence[Piece], num_queries: int) -> list[int]:
    """Return the indices of the last tokens of every row that wants logits."""
    return [
        row * num_queries + place
        for row, piece in enumerate(pieces)
        for place in range(len(piece.tokens) - piece.num_logits, len(piece.tokens))
    ]


def _size(bucket: Bucket) -> int:
    return bucket.rows * (2 + bucket.blocks) + bucket.num_logits + bucket.num_tokens
