"""The left-padded KV batch of arXiv 2510.22876: the contents of all rows end in the same column.

A row is two numbers, `start` and `cached_len`. Its cached tokens are in columns [start, start +
cached_len), so its padding is `start`. Mask and positions follow from these numbers alone, never
from IDs, because a pad ID may occur in content. A verification commits a different number of tokens
to each row, which leaves the ends ragged. `realign` moves the rows so that their contents end
together again. The in-place cache (paged.py) does not have this cost.

Content is the committed tokens. The cache may lack the last of them, and always lacks the pending
one.

Shape legend: P planes (keys and values of every layer), B rows, S columns there is room for, L
columns in use, W numbers of a token in a plane, H key-value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_core.host_copies import on_device
from specdec_core.kv_cache.paged import KVShape

COLUMN_STEP = 64
"""Step in columns by which the memory grows."""
_HEADROOM = 16
"""Columns that a move leaves free after the contents, for the next passes."""
_WORD = torch.int64
"""Type of copies: 8-byte words if a token's numbers fill them. A third faster in bfloat16."""


class PaddedKV:
    """The keys and values of B rows in one rectangle. As KVBlocks, a row is a slot whose blocks
    have one token each."""

    block_size = 1

    def __init__(self, shape: KVShape, content_lens: Sequence[int]) -> None:
        """Make empty rows, padded for contents of these lengths."""
        self.shape = shape
        self.starts = _padding(content_lens)
        self.cached_lens = [0] * len(content_lens)
        self._storage_PBSW = _zeros(shape, len(content_lens), max(content_lens, default=0))

    @property
    def num_rows(self) -> int:
        return len(self.starts)

    @property
    def num_columns(self) -> int:
        """Columns that there is room for (S)."""
        return self._storage_PBSW.shape[2]

    @property
    def width(self) -> int:
        """Columns in use (L)."""
        return max(self.ends, default=0)

    @property
    def ends(self) -> list[int]:
        """First column after the cached tokens of each row."""
        return [start + n for start, n in zip(self.starts, self.cached_lens, strict=True)]

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of a layer, each [B * S, H, D]; views, for reading and writing."""
        keys_BSW, values_BSW = self._storage_PBSW[2 * layer], self._storage_PBSW[2 * layer + 1]
        heads = (-1, self.shape.num_kv_heads, self.shape.head_dim)
        return keys_BSW.view(heads), values_BSW.view(heads)

    def block_table(self, slot: int) -> Sequence[int]:
        """Return the rows of the pools that cache a row's tokens."""
        first = slot * self.num_columns + self.starts[slot]
        return range(first, first + self.cached_lens[slot])

    @property
    def all_pools(self) -> Sequence[tuple[Tensor, Tensor]]:
        """Return `pools` of every layer, a new object each time, because `extend` may move them."""
        return [self.pools(layer) for layer in range(self.shape.num_layers)]

    def positions(self, num_columns: int) -> Tensor:
        """Return the place of every column in its row's content, negative in the padding; [B,
        num_columns].

        Mask and position IDs both come from here.
        """
        device = self.shape.device
        starts_B1 = on_device(self.starts, torch.long, device).unsqueeze(1)
        return torch.arange(num_columns, device=device) - starts_B1

    def extend(self, counts: Mapping[int, int]) -> None:
        """Make room for `counts[row]` more tokens after each row. Their places count as cached."""
        for row, count in counts.items():
            self.cached_lens[row] += count
        missing = self.width - self.num_columns
        if missing > 0:
            planes, rows, _, numbers = self._storage_PBSW.shape
            more = _round_up(missing + _HEADROOM)
            room_PBSW = self._storage_PBSW.new_zeros(planes, rows, more, numbers)
            self._storage_PBSW = torch.cat([self._storage_PBSW, room_PBSW], dim=2)

    def rollback(self, row: int, length: int) -> None:
        """Forget every token of a row at or after `length`; a no-op when fewer are cached."""
        self.cached_lens[row] = min(self.cached_lens[row], length)

    def realign(self, rows: Sequence[int], content_lens: Sequence[int]) -> int:
        """Keep the named rows, align the ends of their contents, and return the number of bytes
        moved.

        Unpad, append, repad: with L' the longest content, row i moves to L' - c_i, all layers in
        one step. Contents that already end together are not moved, and a single row never is.
        """
        starts = [self.starts[row] for row in rows]
        ends = {start + length for start, length in zip(starts, content_lens, strict=True)}
        if list(rows) == list(range(self.num_rows)) and len(ends) <= 1:
            return 0
        self.cached_lens = [self.cached_lens[row] for row in rows]
        self.starts = _padding(content_lens)
        shifts = [old - new for old, new in zip(starts, self.starts, strict=True)]
        self._storage_PBSW = self._moved(rows, shifts, _round_up(self.width + _HEADROOM))
        return sum(self.cached_lens) * self.shape.bytes_per_token

    def _moved(self, rows: Sequence[int], shifts: Sequence[int], num_columns: int) -> Tensor:
        """Return row rows[j] with column s taken from column s + shifts[j]. The padding is
        undefined."""
        device = self.shape.device
        planes, num_rows, old_columns, numbers = self._storage_PBSW.shape
        sources_2J = on_device([list(rows), shifts], torch.long, device).view(2, -1, 1)
        columns_JS = torch.arange(num_columns, device=device) + sources_2J[1]
        index_JS = sources_2J[0] * old_columns + columns_JS.clamp_(0, old_columns - 1)
        flat_PNW = _as_words(self._storage_PBSW.view(planes, num_rows * old_columns, numbers))
        moved_PNW = flat_PNW.index_select(1, index_JS.flatten()).view(self.shape.dtype)
        return moved_PNW.view(planes, len(rows), num_columns, numbers)


class PaddedRow(NamedTuple):
    """One row of a batch, which it keeps alive. Stack a single row before storing it."""

    kv: PaddedKV
    row: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the row's cached tokens."""
        return self.kv.cached_lens[self.row] * self.kv.shape.bytes_per_token


def stack(rows: Sequence[PaddedRow], content_lens: Sequence[int]) -> PaddedKV:
    """Return a new batch of existing rows, in its own memory. The rows stay as they are."""
    stacked = PaddedKV(rows[0].kv.shape, content_lens)
    stacked.cached_lens = [kv.cached_lens[row] for kv, row in rows]
    for index, (kv, source) in enumerate(rows):
        start, into, n = kv.starts[source], stacked.starts[index], stacked.cached_lens[index]
        cached_PSW = kv._storage_PBSW[:, source, start : start + n]
        stacked._storage_PBSW[:, index, into : into + n] = cached_PSW
    return stacked


def _as_words(pool: Tensor) -> Tensor:
    """Return the same memory in 8-byte words if the last dimension allows it."""
    is_even = pool.shape[-1] * pool.dtype.itemsize % _WORD.itemsize == 0
    return pool.view(_WORD) if is_even else pool


def _padding(content_lens: Sequence[int]) -> list[int]:
    longest = max(content_lens, default=0)
    return [longest - length for length in content_lens]


def _zeros(shape: KVShape, num_rows: int, width: int) -> Tensor:
    """Return zeros, because a masked key weighs exactly 0, but 0 * NaN is NaN."""
    numbers = shape.num_kv_heads * shape.head_dim
    sizes = (2 * shape.num_layers, num_rows, _round_up(width + _HEADROOM), numbers)
    return torch.zeros(sizes, dtype=shape.dtype, device=shape.device)


def _round_up(num_columns: int) -> int:
    return -(-num_columns // COLUMN_STEP) * COLUMN_STEP
