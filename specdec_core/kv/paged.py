"""In-place KV slots over fixed-size blocks (docs/decisions/0001-kv-blocks.md).

A slot's token at place p lies in row `block_table[p // block_size]`, offset `p % block_size`, for
good: a rollback is a smaller length, and nothing is ever moved.

Shape legend: L layers, N blocks, B tokens of a block, H key-value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_core.kv.blocks import BlockAllocator

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """What one model's keys and values look like."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(eq=False, slots=True)
class _Slot:
    blocks: list[int] = field(default_factory=list)
    length: int = 0


class PagedKV:
    """The key and value pools of every layer and the slots that share them."""

    def __init__(self, shape: KVShape, num_blocks: int, block_size: int = BLOCK_SIZE) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._allocator = BlockAllocator(num_blocks)
        self._slots: dict[int, _Slot] = {}
        self._num_slots_made = 0
        # Empty, not zeros: those are written at once, and a host backs only pages that were.
        # Blocks are cleared when they are taken instead.
        self._pool_L2NBHD = torch.empty(
            (shape.num_layers, 2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        self.all_pools: Sequence[tuple[Tensor, Tensor]] = [
            (keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in self._pool_L2NBHD
        ]
        """Keys and values of every layer, each [N * B, H, D]; views, for reading and writing."""

    @property
    def num_free_blocks(self) -> int:
        return self._allocator.num_free

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        """`all_pools` of a layer."""
        return self.all_pools[layer]

    def allocate(self) -> int:
        """A new empty slot; numbers are not used twice, so that a stale one is an error."""
        slot = self._num_slots_made
        self._num_slots_made += 1
        self._slots[slot] = _Slot()
        return slot

    def free(self, slot: int) -> None:
        self._allocator.give_back(self._slots.pop(slot).blocks)

    def cached_len(self, slot: int) -> int:
        return self._slots[slot].length

    def block_table(self, slot: int) -> Sequence[int]:
        return self._slots[slot].blocks

    def extend(self, counts: dict[int, int]) -> None:
        """Make room for `counts[slot]` more tokens in each slot; their places count as cached.

        Raises OutOfBlocksError and then changes nothing.
        """
        needed = {slot: self._missing_blocks(slot, count) for slot, count in counts.items()}
        taken = self._allocator.take(sum(needed.values()))
        self._clear(taken)
        for slot, count in counts.items():
            state = self._slots[slot]
            state.blocks += taken[: needed[slot]]
            state.length += count
            del taken[: needed[slot]]

    def rollback(self, slot: int, length: int) -> None:
        """Forget every place at or after `length`; a no-op when fewer are cached."""
        assert length >= 0
        state = self._slots[slot]
        if length >= state.length:
            return
        state.length = length
        num_kept = self._blocks_for(length)
        self._allocator.give_back(state.blocks[num_kept:])
        del state.blocks[num_kept:]

    def _blocks_for(self, length: int) -> int:
        return -(-length // self.block_size)

    def _missing_blocks(self, slot: int, count: int) -> int:
        state = self._slots[slot]
        return self._blocks_for(state.length + count) - len(state.blocks)

    def _clear(self, blocks: Sequence[int]) -> None:
        """Zero blocks that change hands: a NaN in what memory or a request left must not spread.

        A masked key weighs exactly 0, but 0 * NaN is NaN.
        """
        for block in blocks:
            self._pool_L2NBHD[:, :, block].zero_()
