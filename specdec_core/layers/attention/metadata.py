"""Metadata of a forward pass: index tensors, built once per pass and used by every layer.

A pass is flat and ragged: the tokens of all rows follow each other on one axis, without padding, in
the order of the input. Only attention pads, and each backend has its own planner here.

`plan_segments` splits the pass into segments, each a rectangle of queries and keys. Rows with few
queries are padded to one rectangle. The pieces of one long feed share a segment and its keys. Other
long rows share a segment with rows of the same two lengths. `plan_blocks` is for kernels that read
the blocks themselves and take rows of any lengths.

Shape legend: T tokens of the pass, P rows of the pass, R rows of a segment, Q queries per row, H
query heads, K key-value heads, G = H / K, D head size, S keys per row (rounded up), W blocks of a
row, N logits.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import add
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specdec_core.errors import ModelNotSupportedError
from specdec_core.host_copies import on_device, to_device
from specdec_core.kernels.ops import BlockRows
from specdec_core.kv_cache.paged import KVShape
from specdec_core.model import ForwardInput, Row


class SizeRange(NamedTuple):
    """Sizes, both ends included, whose results have equal bits."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The shapes in which attention is called."""

    queries: SizeRange
    """Queries of a row. Fewer are padded; more become several rows."""
    key_lens: tuple[int, ...]
    """Key lengths that are read, ascending. A longer one is a multiple of the last one plus one of
    these."""

    def key_len(self, num_keys: int) -> int:
        """Return the number of keys that are read if a row needs `num_keys`, at least 1."""
        num_whole = (num_keys - 1) // self.key_lens[-1] * self.key_lens[-1]
        return num_whole + self.key_lens[bisect_left(self.key_lens, num_keys - num_whole)]

    def __str__(self) -> str:
        if self.queries.high == sys.maxsize and self.key_lens == (1,):
            return "attention of any shape"
        return f"attention {self.queries} queries, keys by {'/'.join(map(str, self.key_lens))}"


FAST_ATTENTION = AttentionShape(queries=SizeRange(1, sys.maxsize), key_lens=(64,))
"""Shape in fast numerics. Lengths are rounded here too, because few lengths mean few shapes for the
kernels to prepare."""


ANY_ATTENTION = AttentionShape(queries=SizeRange(1, sys.maxsize), key_lens=(1,))
"""Shape for kernels whose results do not depend on the shape."""


MAX_SHORT_QUERIES = 16
"""Maximum queries of the rows that are padded to one rectangle."""


class KVBlocks(Protocol):
    """The part of a cache that a plan needs: the place of every token."""

    @property
    def shape(self) -> KVShape: ...

    @property
    def block_size(self) -> int: ...

    def block_table(self, slot: int) -> Sequence[int]: ...


class Segment(NamedTuple):
    """Rows whose attention is one call."""

    query_index: Tensor | None
    """[R * Q] token of each query, padded queries included. None if the queries are the tokens of
    the pass in their order."""
    block_index: Tensor | None
    """[R * blocks of S] blocks of every row. [blocks of S] when all rows are of one slot and read
    the same keys. None for attention that gathers no keys."""
    mask: Tensor
    """[R, 1, G * Q, S] additive."""


class AttentionMetadata(NamedTuple):
    """One forward pass. Attention uses either `segments` or `rows`."""

    input_ids: Tensor
    """[1, T]"""
    position_ids: Tensor
    """[1, T]"""
    write_index: Tensor
    """[T] row of the key and value pools that each token writes."""
    logits_index: Tensor
    """[N] tokens whose logits are wanted."""
    block_size: int = 1
    """Tokens of a block."""
    segments: Sequence[Segment] = ()
    token_index: Tensor | None = None
    """[T] place of each token in the queries of all segments, one segment after another. None if
    the order is the same."""
    rows: BlockRows | None = None
    """Set for kernels that read the blocks themselves."""

    def check_new_kv(self, pool: Tensor, key_TKD: Tensor, value_TKD: Tensor) -> None:
        """Raise ModelNotSupportedError if new keys or values do not fit into the rows of `pool`."""
        expected = (self.write_index.shape[0], *pool.shape[1:])
        if key_TKD.shape != expected or value_TKD.shape != expected:
            raise ModelNotSupportedError(
                f"keys have shape {tuple(key_TKD.shape)} and values {tuple(value_TKD.shape)}, "
                f"but the model's configuration requires {expected}"
            )


def split_into_passes(batch: ForwardInput, max_tokens: int, max_queries: int) -> list[ForwardInput]:
    """Cut a call, in order, into passes of at most `max_tokens` tokens and rows of `max_queries`.

    Rows of one slot may share a pass, because keys are written before any query reads them. No pass
    and no row is without tokens.
    """
    passes: list[list[tuple[int, Row]]] = []
    room = 0
    for (slot, tokens, num_logits), start in zip(batch.rows(), batch.starts, strict=True):
        done, first_wanted = 0, len(tokens) - num_logits
        while done < len(tokens):
            if room == 0:
                passes.append([])
                room = max_tokens
            end = min(done + room, done + max_queries, len(tokens))
            num_wanted = max(end - max(done, first_wanted), 0)
            passes[-1].append((start + done, (slot, tokens[done:end], num_wanted)))
            room -= end - done
            done = end
    return [
        ForwardInput.of((row for _, row in rows), batch.taps, [start for start, _ in rows])
        for rows in passes
    ]


def plan_blocks(batch: ForwardInput, kv: KVBlocks) -> AttentionMetadata:
    """Return the metadata for kernels that read the blocks and take rows of any lengths."""
    counts, num_rows = batch.token_counts, len(batch.slots)
    ends = list(map(add, batch.starts, counts))
    max_queries, max_keys = max(counts), max(ends)
    width = -(-max_keys // kv.block_size)
    # One copy for three tensors. Each begins at a multiple of 16 bytes, because Triton compiles
    # another kernel for addresses that do not.
    size = num_rows + 4 & ~3
    padding = [0] * (size - num_rows)
    numbers = array("i", [0, *accumulate(counts), *padding[1:], *ends, *padding])
    append_blocks(numbers, batch.slots, width, kv)
    numbers_X = to_device(torch.frombuffer(numbers, dtype=torch.int32), kv.shape.device)
    query_ends, key_counts = numbers_X[: num_rows + 1], numbers_X[size : size + num_rows]
    blocks = numbers_X[2 * size :].view(num_rows, width)
    rows = BlockRows(query_ends, key_counts, blocks, max_queries, max_keys)
    return AttentionMetadata(*flat_indices(batch, kv), kv.block_size, rows=rows)


def append_blocks(numbers: array[int], slots: Sequence[int], width: int, kv: KVBlocks) -> None:
    """Append `width` blocks of each slot.

    A slot is padded with its own last block. Reads of the padding are masked, but 0 * NaN is NaN,
    and a NaN that another request left must not spread.
    """
    for slot in slots:
        table = kv.block_table(slot)[:width]
        numbers.extend(table)
        numbers.extend(array("i", table[-1:]) * (width - len(table)))


def flat_indices(batch: ForwardInput, kv: KVBlocks) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return input_ids, position_ids, write_index and logits_index of AttentionMetadata: views of
    one tensor. With one row, creating a tensor costs more than its content."""
    size = kv.block_size
    positions: list[int] = []
    pool_rows: list[int] = []
    wanted: list[int] = []
    end = 0
    columns = batch.slots, batch.starts, batch.token_counts, batch.num_logits
    for slot, start, count, num_logits in zip(*columns, strict=True):
        own, table = range(start, start + count), kv.block_table(slot)
        end += count
        positions += own
        pool_rows += [table[position // size] * size + position % size for position in own]
        wanted += range(end - num_logits, end)
    numbers = array("q", [*batch.token_ids, *positions, *pool_rows, *wanted])
    indices = to_device(torch.frombuffer(numbers, dtype=torch.long), kv.shape.device)
    sizes = [end, end, end, len(wanted)]
    input_ids, position_ids, write_index, logits_index = indices.split_with_sizes(sizes)
    return input_ids.unsqueeze(0), position_ids.unsqueeze(0), write_index, logits_index


def plan_segments(
    batch: ForwardInput, kv: KVBlocks, num_query_groups: int, attention: AttentionShape
) -> AttentionMetadata:
    """Return the metadata for attention over gathered keys."""
    counts, starts = batch.token_counts, batch.starts
    ends = list(map(add, starts, counts))
    firsts = list(accumulate(counts, initial=0))
    keys: list[tuple[Tensor, Tensor]] = []
    queries: list[list[int]] = []
    for rows in _segments(batch, ends, attention):
        num_queries = max(attention.queries.low, *(counts[row] for row in rows))
        key_len = attention.key_len(max(ends[row] for row in rows))
        # A row is padded with its own last query.
        padded = [(row, min(i, counts[row] - 1)) for row in rows for i in range(num_queries)]
        queries.append([firsts[row] + i for row, i in padded])
        position_RQ = _index([starts[row] + i for row, i in padded], kv).view(len(rows), -1)
        mask = causal_mask(position_RQ, key_len, num_query_groups, kv.shape.dtype)
        keys.append((_block_index([batch.slots[row] for row in rows], key_len, kv), mask))
    tokens = list(chain(*queries))
    is_in_order = tokens == list(range(len(batch.token_ids)))
    is_flat = is_in_order and len(queries) == 1
    return AttentionMetadata(
        *flat_indices(batch, kv),
        kv.block_size,
        segments=[
            Segment(None if is_flat else _index(own, kv), *blocks_and_mask)
            for own, blocks_and_mask in zip(queries, keys, strict=True)
        ],
        token_index=None if is_in_order else _index(_inverse(tokens), kv),
    )


def _segments(
    batch: ForwardInput, ends: Sequence[int], attention: AttentionShape
) -> Collection[list[int]]:
    """Return the rows of each segment."""
    occurrences = Counter(batch.slots)
    members: dict[tuple[int, int], list[int]] = {}
    for row, (slot, count) in enumerate(zip(batch.slots, batch.token_counts, strict=True)):
        if occurrences[slot] > 1:
            key = -1, slot
        elif count <= MAX_SHORT_QUERIES:
            key = 0, 0
        else:
            key = count, attention.key_len(ends[row])
        members.setdefault(key, []).append(row)
    return members.values()


def _inverse(tokens: Sequence[int]) -> list[int]:
    """Return the first place of each token in `tokens`."""
    positions = {token: position for position, token in reversed(list(enumerate(tokens)))}
    return [positions[token] for token in range(len(positions))]


def _block_index(slots: Sequence[int], key_len: int, kv: KVBlocks) -> Tensor:
    """Return the blocks of `key_len` keys of each slot, or of the slot if all are the same."""
    numbers = array("i")
    different = slots[:1] if len(set(slots)) == 1 else slots
    append_blocks(numbers, different, key_len // kv.block_size, kv)
    return _index(numbers, kv)


def causal_mask(
    position_RQ: Tensor, num_keys: int, num_query_groups: int, dtype: torch.dtype
) -> Tensor:
    """Return the mask of queries at these places, [R, 1, G * Q, S].

    A query sees its own place and those before it. The mask also hides keys after the row's end,
    which are read because the key length is rounded up.
    """
    hidden_RQS = torch.arange(num_keys, device=position_RQ.device) > position_RQ.unsqueeze(-1)
    return additive_mask(hidden_RQS, num_query_groups, dtype)


def additive_mask(hidden_RQS: Tensor, num_query_groups: int, dtype: torch.dtype) -> Tensor:
    """Return the mask of every query head of a key head, [R, 1, G * Q, S]: -inf where a key is
    hidden, 0 elsewhere."""
    mask_RQS = torch.zeros(hidden_RQS.shape, dtype=dtype, device=hidden_RQS.device)
    mask_RQS.masked_fill_(hidden_RQS, float("-inf"))
    return mask_RQS.unsqueeze(1).repeat(1, 1, num_query_groups, 1)


def _index(values: Sequence[int], kv: KVBlocks) -> Tensor:
    return on_device(values, torch.long, kv.shape.device)
