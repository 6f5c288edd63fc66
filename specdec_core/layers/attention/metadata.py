"""Metadata of a forward pass: index tensors, built once per pass and used by every layer.

A pass is flat and ragged: the tokens of all rows follow each other on one axis, without padding.
Only attention is split, into segments. Rows with few queries are padded to a rectangle together.
The pieces of one long feed share a segment and its keys. Other long rows share a segment with rows
of the same two lengths.

Shape legend: T tokens of the pass, R rows of a segment, Q queries per row, G query heads per
key-value head, S keys per row (rounded up), N logits.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specdec_core.host_copies import on_device, to_device
from specdec_core.kernels.ops import PieceTable
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.shape import AttentionShape
from specdec_core.model import Feed

MAX_SHORT_QUERIES = 16
"""Maximum queries of the rows that are padded to one rectangle."""


class KVBlocks(Protocol):
    """The part of a cache that a plan needs: the place of every token."""

    @property
    def shape(self) -> KVShape: ...

    @property
    def block_size(self) -> int: ...

    def block_table(self, slot: int) -> Sequence[int]: ...


class Piece(NamedTuple):
    """A part of a feed that runs in one pass and is one row of attention."""

    slot: int
    start: int
    """Place of the first token in its sequence."""
    tokens: Sequence[int]
    num_logits: int

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows whose attention is one call."""

    num_rows: int
    num_queries: int
    first_token: int
    num_tokens: int
    query_index: Tensor | None
    """[R * Q] token of each padded query; None when the rows fill the rectangle."""
    token_index: Tensor | None
    """[T] padded query of each of the segment's tokens, the inverse of `query_index`."""
    block_index: Tensor
    """[R * blocks of S] blocks of every row. [blocks of S] when all rows are of one slot and read
    the same keys."""
    mask: Tensor
    """[R, 1, G * Q, S] additive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMetadata:
    """One forward pass. Attention uses either `segments` or `table`."""

    input_ids: Tensor
    """[1, T]"""
    position_ids: Tensor
    """[1, T]"""
    write_index: Tensor
    """[T] row of the key and value pools that each token writes."""
    logits_index: Tensor
    """[N] tokens whose logits are wanted, in the order of the feeds."""
    segments: tuple[Segment, ...] = ()
    table: PieceTable | None = None
    last_place: int = 0
    """Maximum place of all tokens, if there is a table."""


def split_into_passes(
    feeds: Sequence[Feed], starts: Sequence[int], max_tokens: int, max_queries: int
) -> list[list[Piece]]:
    """Cut feeds, in order, into passes of at most `max_tokens` tokens and pieces of `max_queries`.

    Pieces of one feed may share a pass: keys are written before any query reads them.
    """
    passes: list[list[Piece]] = [[]]
    room = max_tokens
    for feed, start in zip(feeds, starts, strict=True):
        done = 0
        while done < len(feed.tokens):
            if room == 0:
                passes.append([])
                room = max_tokens
            count = min(room, len(feed.tokens) - done, max_queries)
            passes[-1].append(_piece(feed, start, done, done + count))
            done += count
            room -= count
    return passes


def _piece(feed: Feed, start: int, first: int, end: int) -> Piece:
    first_wanted = len(feed.tokens) - feed.num_logits
    num_logits = max(end - max(first, first_wanted), 0)
    return Piece(feed.slot, start + first, feed.tokens[first:end], num_logits)


def plan_native_pass(pieces: Sequence[Piece], kv: KVBlocks) -> AttentionMetadata:
    """Return only the indices, for kernels that read blocks and take rows of any lengths.

    The indices are views of two tensors. With one row, creating a tensor costs more than its
    content.
    """
    ids: list[int] = []
    places: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    facts: list[int] = []
    size = kv.block_size
    for slot, start, tokens, num_logits in pieces:
        first, end = len(ids), start + len(tokens)
        facts += first, end - start, start
        ids += tokens
        places += range(start, end)
        table = kv.block_table(slot)
        rows += [table[place // size] * size + place % size for place in range(start, end)]
        wanted += range(len(ids) - num_logits, len(ids))
    sizes = [len(ids), len(ids), len(ids), len(wanted)]
    numbers = array("q", ids + places + rows + wanted)
    indices = to_device(torch.frombuffer(numbers, dtype=torch.long), kv.shape.device)
    input_ids, position_ids, write_index, logits_index = indices.split_with_sizes(sizes)
    return AttentionMetadata(
        input_ids=input_ids.unsqueeze(0),
        position_ids=position_ids.unsqueeze(0),
        write_index=write_index,
        logits_index=logits_index,
        table=_piece_table(pieces, facts, kv),
        last_place=max(places),
    )


def _piece_table(pieces: Sequence[Piece], facts: list[int], kv: KVBlocks) -> PieceTable:
    """Return the table of `facts`, which has the format of PieceTable, one piece after another."""
    size = kv.block_size
    counts = [-(-(start + len(tokens)) // size) for _, start, tokens, _ in pieces]
    width, num_facts, numbers = max(counts), len(facts), array("i", facts)
    for piece, count in zip(pieces, counts, strict=True):
        numbers.extend(kv.block_table(piece.slot)[:count])
        numbers.extend([0] * (width - count))
    both = torch.frombuffer(numbers, dtype=torch.int32)
    return PieceTable(both[:num_facts].view(-1, 3), both[num_facts:].view(-1, width), kv.block_size)


def plan_pass(
    pieces: Sequence[Piece], kv: KVBlocks, num_query_groups: int, attention: AttentionShape
) -> AttentionMetadata:
    """Order the pieces by segment and build every index that the layers need."""
    occurrences = Counter(piece.slot for piece in pieces)

    def segment_key(piece: Piece) -> tuple[int, int, int]:
        """Return the key of a piece's segment. Segments of short pieces come first."""
        if occurrences[piece.slot] > 1:
            return (1, piece.slot, 0)
        if len(piece.tokens) <= MAX_SHORT_QUERIES:
            return (0, 0, 0)
        return (2, len(piece.tokens), attention.key_len(piece.end))

    order = sorted(range(len(pieces)), key=lambda index: segment_key(pieces[index]))
    ordered = [pieces[index] for index in order]
    ends = list(accumulate(len(piece.tokens) for piece in ordered))
    wanted = {
        index: range(end - pieces[index].num_logits, end)
        for index, end in zip(order, ends, strict=True)
    }
    grouped = (members for _, members in groupby(ordered, segment_key))
    return AttentionMetadata(
        input_ids=_index([token for p in ordered for token in p.tokens], kv).unsqueeze(0),
        position_ids=_index([i for p in ordered for i in _places(p)], kv).unsqueeze(0),
        write_index=_index([i for p in ordered for i in _pool_rows(p, kv)], kv),
        logits_index=_index([i for index in sorted(wanted) for i in wanted[index]], kv),
        segments=tuple(_segments(grouped, kv, num_query_groups, attention)),
    )


def _segments(
    rows_of_segments: Iterable[Iterable[Piece]],
    kv: KVBlocks,
    num_query_groups: int,
    attention: AttentionShape,
) -> Iterator[Segment]:
    first_token = 0
    for members in rows_of_segments:
        segment = _segment(list(members), first_token, kv, num_query_groups, attention)
        first_token += segment.num_tokens
        yield segment


def _segment(
    rows: list[Piece],
    first_token: int,
    kv: KVBlocks,
    num_query_groups: int,
    attention: AttentionShape,
) -> Segment:
    query_lens = [len(row.tokens) for row in rows]
    num_queries = max(*query_lens, attention.queries.low)
    key_len = attention.key_len(max(row.end for row in rows))
    is_rectangle = min(query_lens) == num_queries
    slots = [row.slot for row in rows]
    if len(set(slots)) == 1:
        slots = slots[:1]
    return Segment(
        num_rows=len(rows),
        num_queries=num_queries,
        first_token=first_token,
        num_tokens=sum(query_lens),
        query_index=None if is_rectangle else _query_index(query_lens, num_queries, kv),
        token_index=None if is_rectangle else _token_index(query_lens, num_queries, kv),
        block_index=_block_index(slots, key_len // kv.block_size, kv),
        mask=_mask(rows, num_queries, key_len, kv).repeat(1, 1, num_query_groups, 1),
    )


def _query_index(query_lens: Sequence[int], num_queries: int, kv: KVBlocks) -> Tensor:
    """Return the token of each padded query. Rows are padded with their own last query."""
    ends = accumulate(query_lens)
    rows = zip(query_lens, ends, strict=True)
    return _index([min(end - n + i, end - 1) for n, end in rows for i in range(num_queries)], kv)


def _token_index(query_lens: Sequence[int], num_queries: int, kv: KVBlocks) -> Tensor:
    return _index([r * num_queries + i for r, n in enumerate(query_lens) for i in range(n)], kv)


def _block_index(slots: Sequence[int], num_blocks: int, kv: KVBlocks) -> Tensor:
    """Return the blocks of the rows, without taken blocks after the pass's keys.

    A row is padded with its own last block. Reads of the padding are masked, but 0 * NaN is NaN,
    and a NaN that another request left must not spread.
    """
    blocks: list[int] = []
    for slot in slots:
        table = kv.block_table(slot)[:num_blocks]
        blocks += table
        blocks += [table[-1]] * (num_blocks - len(table))
    return _index(blocks, kv)


def _mask(rows: Sequence[Piece], num_queries: int, key_len: int, kv: KVBlocks) -> Tensor:
    """Return the mask, [R, 1, Q, S]: 0 where a query sees a key, -inf elsewhere.

    A query sees its own place and those before it. The mask also hides keys after the row's end,
    which are read because the key length is rounded up.
    """
    last = [row.end - 1 for row in rows]
    places = [
        min(row.start + i, end)
        for row, end in zip(rows, last, strict=True)
        for i in range(num_queries)
    ]
    place_RQ1 = _index(places, kv).view(len(rows), num_queries, 1)
    hidden_RQS = torch.arange(key_len, device=kv.shape.device) > place_RQ1
    mask_RQS = torch.zeros(hidden_RQS.shape, dtype=kv.shape.dtype, device=kv.shape.device)
    return mask_RQS.masked_fill_(hidden_RQS, float("-inf")).unsqueeze(1)


def _places(piece: Piece) -> range:
    return range(piece.start, piece.end)


def _pool_rows(piece: Piece, kv: KVBlocks) -> Iterator[int]:
    table = kv.block_table(piece.slot)
    for place in _places(piece):
        block, offset = divmod(place, kv.block_size)
        yield table[block] * kv.block_size + offset


def _index(values: list[int], kv: KVBlocks) -> Tensor:
    return on_device(values, torch.long, kv.shape.device)
