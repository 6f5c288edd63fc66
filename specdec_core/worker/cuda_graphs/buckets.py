"""Which shapes the passes over static buffers have: few, so that each is recorded once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from specdec_core.layers.attention.metadata import Piece
from specdec_core.layers.attention.shape import AttentionShape

MAX_ROWS = 128
MAX_QUERIES = 33
"""Tokens of a row: the most drafted ones and the pending one. Longer feeds are prefill."""
_ROW_STEP = 8
_EXACT_QUERIES = 9
"""Up to so many tokens a row have a shape of their own: K is small and seldom changes."""
_QUERY_STEP = 4
_BLOCK_STEP = 4
_STEPS_PER_DOUBLING = 4
_MOST_PADDING = 2
"""Times the tokens, and the blocks, of a pass: those of a shape that stands in for its own."""
_FEW_TOKENS = 64
"""Passes of so many take a GPU as long as those of one."""


class Bucket(NamedTuple):
    """The sizes of a pass. Rows, tokens and blocks that are missing are padding."""

    rows: int
    queries: int
    """Tokens of a row."""
    blocks: int
    """Blocks of the cache that a row reads."""
    num_logits: int
    """Of all rows: one each, or one for each token as far as a pass may want so many."""

    @property
    def num_tokens(self) -> int:
        return self.rows * self.queries

    def may_stand_in(self, other: Bucket, reads_blocks: bool) -> bool:
        """Whether a pass of `other` may run in this shape, and takes about as long. Where blocks
        are gathered, all of them are read."""
        holds = all(own >= asked for own, asked in zip(self, other, strict=True))
        most_tokens = max(_MOST_PADDING * other.num_tokens, _FEW_TOKENS)
        most_blocks = _MOST_PADDING * other.blocks if reads_blocks else other.blocks
        return holds and self.num_tokens <= most_tokens and self.blocks <= most_blocks


class Shape(NamedTuple):
    """What a recording is found by."""

    bucket: Bucket
    work: Hashable
    """What it does besides a pass of these sizes."""


def rounded_rows(count: int) -> int:
    """1, 2, 4, 8, 16, 24, 32 ..."""
    if count > _ROW_STEP // 2:
        return -(-count // _ROW_STEP) * _ROW_STEP
    return 1 << (count - 1).bit_length()


def rounded_queries(count: int) -> int:
    """1 to 9, then 13, 17 ... 33."""
    if count <= _EXACT_QUERIES:
        return count
    return _EXACT_QUERIES + -(-(count - _EXACT_QUERIES) // _QUERY_STEP) * _QUERY_STEP


def rounded_blocks(count: int, reads_blocks: bool) -> int:
    """4, 8, 16, 32 ... where attention reads the blocks in place: those behind a row's end cost
    next to nothing. Else 4, 8 ... 32, 40, 48, 56, 64, 80 ...: at most a quarter more than are
    needed, from 16 on."""
    units = -(-count // _BLOCK_STEP)
    doubled = 1 << (units - 1).bit_length()
    step = doubled if reads_blocks else max(doubled // _STEPS_PER_DOUBLING // 2, 1)
    return _BLOCK_STEP * step * -(-units // step)


def most_logits(max_choices: int) -> int:
    """Of a pass that chooses at most so many tokens: also where it wants none of some rows."""
    return max(max_choices, MAX_ROWS)


def bucket_for(
    pieces: Sequence[Piece],
    block_size: int,
    attention: AttentionShape,
    max_logits: int,
    num_ahead: int = 0,
    reads_blocks: bool = False,
) -> Bucket | None:
    """The shape of a pass of these pieces and `num_ahead` later ones of a token each.

    None where they are no such pass: too many rows, a prefill, a slot twice, more queries than
    `attention` takes at once, or more wanted logits than `max_logits`, which holds one a row.
    """
    longest = max(len(piece.tokens) for piece in pieces)
    if len(pieces) > MAX_ROWS or longest > min(MAX_QUERIES, attention.queries.high):
        return None
    if len({piece.slot for piece in pieces}) < len(pieces):
        return None
    low, high = attention.queries
    queries = min(max(rounded_queries(longest), low), high)
    rows = rounded_rows(len(pieces))
    num_logits = sum(piece.num_logits for piece in pieces)
    if num_logits > max_logits:
        return None
    num_keys = max(max(piece.start + queries, piece.end + num_ahead) for piece in pieces)
    num_blocks = rounded_blocks(-(-num_keys // block_size), reads_blocks)
    return Bucket(
        rows=rows,
        queries=queries,
        blocks=-(-attention.key_len(num_blocks * block_size) // block_size),
        num_logits=rows if num_logits <= rows else min(rows * queries, max_logits),
    )
