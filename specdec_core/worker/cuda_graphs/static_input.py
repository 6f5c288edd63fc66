"""The numbers that a pass of fixed shape reads: one tensor on the device, filled by one copy.

Everything else that the pass needs, it works out of them on the device: positions, the places that
are written, and the mask. So nothing between the copy and the logits depends on what the numbers
are. Shape legend: R rows, Q tokens of a row, S blocks of a row, N logits of the pass, B tokens of a
block.
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
    """int32. A row that is padding has no tokens and reads the scratch block."""

    starts: Tensor
    """[R] place of a row's first token in its sequence."""
    counts: Tensor
    """[R] its tokens; those behind them are padding."""
    blocks: Tensor
    """[R, S]"""
    wanted: Tensor
    """[N] tokens of the pass whose logits are wanted, in the order of the feeds."""
    ids: Tensor
    """[R, Q]"""


class PassBuffers:
    """Memory of all shapes: one pass runs at a time. Where the rows and the blocks of two shapes
    agree, `starts`, `counts` and `blocks` are the same memory."""

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
        """All rows become padding: a pass writes to the scratch block alone."""
        self._numbers.zero_()

    def fill(self, numbers: array[int]) -> None:
        """Never waits for the device."""
        target = self._numbers[: len(numbers)]
        copy_without_waiting(torch.frombuffer(numbers, dtype=torch.int32), target)


def pack(pieces: Sequence[Piece], kv: KVBlocks, bucket: Bucket, scratch_block: int) -> array[int]:
    """The numbers of a pass, in the order of PassNumbers."""
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
    """A row is padded with its own last block: what it reads there is masked, but 0 * NaN is NaN,
    and one that some other request left must not spread."""
    for piece in pieces:
        table = kv.block_table(piece.slot)[:width]
        numbers.extend(table)
        numbers.extend(array("i", table[-1:]) * (width - len(table)))


def _wanted(pieces: Sequence[Piece], num_queries: int) -> list[int]:
    """The last tokens of every row that asks."""
    return [
        row * num_queries + place
        for row, piece in enumerate(pieces)
        for place in range(len(piece.tokens) - piece.num_logits, len(piece.tokens))
    ]


def _size(bucket: Bucket) -> int:
    return bucket.rows * (2 + bucket.blocks) + bucket.num_logits + bucket.num_tokens
