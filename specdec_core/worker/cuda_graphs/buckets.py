"""Shapes of the passes over static buffers. There are few, so that each is recorded once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from specdec_core.layers.attention.metadata import AttentionShape
from specdec_core.model import ForwardInput

MAX_ROWS = 128
MAX_QUERIES = 33
"""Maximum tokens of a row: the maximum proposal and the pending token. Longer feeds are prefill."""
_ROW_STEP = 8
_EXACT_QUERIES = 9
"""Up to this number of tokens per row, each count has its own shape, because K is small and seldom
changes."""
_QUERY_STEP = 4
_BLOCK_STEP = 4
_STEPS_PER_DOUBLING = 4
_MOST_PADDING = 2
"""Maximum factor for the tokens, and for the blocks, when a pass runs in a larger shape."""
_FEW_TOKENS = 64
"""Up to this number of tokens, a GPU needs the same time as for one token."""


class Bucket(NamedTuple):
    """The sizes of a pass. Rows, tokens and blocks that are missing are padding."""

    rows: int
    queries: int
    """Tokens per row."""
    blocks: int
    """Cache blocks that a row reads."""
    num_logits: int
    """Logits of all rows: one per row, or one per token up to the maximum that a pass may want."""

    @property
    def num_tokens(self) -> int:
        return self.rows * self.queries

    def may_stand_in(self, other: Bucket, reads_blocks: bool) -> bool:
        """Return True if a pass of `other` may run in this shape and takes about the same time.
        Without in-place reading, a pass reads all blocks, so the shape may have no more blocks."""
        holds = all(own >= needed for own, needed in zip(self, other, strict=True))
        most_tokens = max(_MOST_PADDING * other.num_tokens, _FEW_TOKENS)
        most_blocks = _MOST_PADDING * other.blocks if reads_blocks else other.blocks
        return holds and self.num_tokens <= most_tokens and self.blocks <= most_blocks


class Shape(NamedTuple):
    """Key of a recording."""

    bucket: Bucket
    work: Hashable
    """Work that the recording does in addition to the pass."""


def rounded_rows(count: int) -> int:
    """Round up to one of 1, 2, 4, 8, 16, 24, 32 ..."""
    if count > _ROW_STEP // 2:
        return -(-count // _ROW_STEP) * _ROW_STEP
    return 1 << (count - 1).bit_length()


def rounded_queries(count: int) -> int:
    """Round up to one of 1 to 9, 13, 17 ... 33."""
    if count <= _EXACT_QUERIES:
        return count
    return _EXACT_QUERIES + -(-(count - _EXACT_QUERIES) // _QUERY_STEP) * _QUERY_STEP


def rounded_blocks(count: int, reads_blocks: bool) -> int:
    """Round up to one of 4, 8, 16, 32 ... if attention reads the blocks in place.

    Blocks after a row's end then cost almost nothing. Otherwise round up to 4, 8 ... 32, 40, 48,
    56, 64, 80 ..., at most a quarter more than needed from 16 on.
    """
    units = -(-count // _BLOCK_STEP)
    doubled = 1 << (units - 1).bit_length()
    step = doubled if reads_blocks else max(doubled // _STEPS_PER_DOUBLING // 2, 1)
    return _BLOCK_STEP * step * -(-units // step)


def most_logits(max_choices: int) -> int:
    """Return the maximum logits of a pass that samples at most `max_choices` tokens. A pass has at
    least one per row, also for rows that want none."""
    return max(max_choices, MAX_ROWS)


def bucket_for(
    batch: ForwardInput,
    block_size: int,
    attention: AttentionShape,
    max_logits: int,
    num_ahead: int = 0,
    reads_blocks: bool = False,
) -> Bucket | None:
    """Return the shape of a pass and of `num_ahead` later passes of one token each.

    Return None if no shape fits: too many rows, a prefill, a repeated slot, or more queries than
    `attention` takes per call. Too many wanted logits also give None; `max_logits` holds one per
    row.
    """
    counts, num_rows = batch.token_counts, len(batch.slots)
    longest = max(counts)
    if num_rows > MAX_ROWS or longest > min(MAX_QUERIES, attention.queries.high):
        return None
    if len(set(batch.slots)) < num_rows:
        return None
    low, high = attention.queries
    queries = min(max(rounded_queries(longest), low), high)
    rows = rounded_rows(num_rows)
    num_logits = sum(batch.num_logits)
    if num_logits > max_logits:
        return None
    rows_of_pass = zip(batch.starts, counts, strict=True)
    num_keys = max(start + max(queries, count + num_ahead) for start, count in rows_of_pass)
    num_blocks = rounded_blocks(-(-num_keys // block_size), reads_blocks)
    return Bucket(
        rows=rows,
        queries=queries,
        blocks=-(-attention.key_len(num_blocks * block_size) // block_size),
        num_logits=rows if num_logits <= rows else min(rows * queries, max_logits),
    )
