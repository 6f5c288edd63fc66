"""In-place KV slots over fixed-size blocks (docs/decisions/0001-kv-blocks.md).

A slot's token at place p is permanently in row `block_table[p // block_size]`, offset `p %
block_size`. A rollback only reduces the length, and nothing is ever moved. Slots may share full
blocks if their IDs and all IDs before them are equal. Shared blocks are never written again
(docs/decisions/0009-prefix-cache.md).

On a CPU, `PagePrefault` backs the memory of blocks before they are taken. The first write to a page
is a fault, which took 2 to 10 us on a virtual machine. A new block of the demo model has 150 of
them, and a round of 16 rows takes one block. Blocks that are not needed soon stay unbacked.

Shape legend: L layers, N blocks, B tokens of a block, H key-value heads, D head size.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import subprocess
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from specdec_core.host_copies import on_device
from specdec_core.kernels.build import build_library, reason_of
from specdec_core.kv_cache.block_allocator import BlockAllocator, BlockKey
from specdec_core.kv_cache.spec import FullAttentionSpec

BLOCK_SIZE = 16
RUN_LENGTH = 8
"""Blocks of a run if passes read them in place. A pass of 32 rows with 400 cached tokens then takes
a sixth less (docs/decisions/0001-kv-blocks.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """Shape and type of one model's keys and values."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    def spec(self, block_size: int = BLOCK_SIZE) -> FullAttentionSpec:
        """Return how a cache of this shape counts its blocks."""
        return FullAttentionSpec(block_size, block_size * self.bytes_per_token)


@dataclass(eq=False, slots=True)
class _Slot:
    blocks: array[int]
    """Blocks of the slot. Passes copy them into their numbers; copying from an array takes a third
    of the time."""
    length: int = 0
    serials: list[int] = field(default_factory=list)
    """Serials of the cached blocks. The first len(serials) blocks are full and have a key."""


class PagedKV:
    """The key and value pools of every layer and the slots that share them."""

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        block_size: int = BLOCK_SIZE,
        *,
        run_length: int = 1,
        has_scratch_block: bool = False,
        clears_blocks: bool = True,
        touch: Touch | None = None,
    ) -> None:
        """Make the pools of all layers.

        A slot's blocks are together in runs of `run_length`, as long as there is room. A scratch
        block is an extra block that belongs to no slot. `clears_blocks` is for attention that reads
        places after a sequence's last one and masks them. With `touch`, memory is backed before its
        use (see PagePrefault).
        """
        self.shape = shape
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.spec = shape.spec(block_size)
        self._allocator = BlockAllocator(num_blocks, run_length)
        self._slots: dict[int, _Slot] = {}
        self._slot_numbers = itertools.count()
        self._clears_blocks = clears_blocks
        # Empty, not zeros: zeros are written immediately, and a host backs only written pages. If
        # `clears_blocks` is set, blocks are cleared when they are taken.
        self._pool_L2NBHD = torch.empty(
            (
                shape.num_layers,
                2,
                num_blocks + has_scratch_block,
                block_size,
                shape.num_kv_heads,
                shape.head_dim,
            ),
            dtype=shape.dtype,
            device=shape.device,
        )
        self.all_pools: Sequence[tuple[Tensor, Tensor]] = [
            (keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in self._pool_L2NBHD
        ]
        """Keys and values of every layer, each [N * B, H, D]; views, for reading and writing."""
        num_planes, num_rows = 2 * shape.num_layers, num_blocks + has_scratch_block
        self._words_RX = self._pool_L2NBHD.view(num_planes * num_rows, -1).view(torch.int64)
        """Rows for each block of each layer's keys, and of its values."""
        is_on_host = shape.device.type == "cpu"
        words_PNX = self._words_RX.view(num_planes, num_rows, -1)
        self._host_words_PNX = words_PNX.numpy() if is_on_host else None
        """The same memory in numpy. PyTorch would wake its OpenMP threads to clear a block. They
        then spin for a while on the cores that the kernels' own threads need."""
        bytes_PNX = words_PNX.view(torch.uint8)
        self._ahead = PagePrefault(bytes_PNX, touch) if touch and is_on_host else None
        self._first_rows_P1 = torch.arange(num_planes, device=shape.device)[:, None] * num_rows
        self.scratch_block = num_blocks if has_scratch_block else None
        """Block that padding reads and writes."""
        if self.scratch_block is not None:
            self._clear((self.scratch_block,))

    @property
    def num_free_blocks(self) -> int:
        return self._allocator.num_free

    def pools(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return `all_pools` of a layer."""
        return self.all_pools[layer]

    def allocate(self) -> int:
        """Return a new empty slot. No number is used twice, so a stale one is an error."""
        slot = next(self._slot_numbers)
        self._slots[slot] = _Slot(array("i"))
        return slot

    def free(self, slot: int) -> None:
        self._allocator.free(reversed(self._slots.pop(slot).blocks))

    def cached_len(self, slot: int) -> int:
        return self._slots[slot].length

    def block_table(self, slot: int) -> array[int]:
        return self._slots[slot].blocks

    def extend(self, counts: dict[int, int]) -> None:
        """Make room for `counts[slot]` more tokens in each slot; their places count as cached.
        Raises OutOfBlocksError and then changes nothing."""
        blocks_for, rows = self.spec.blocks_for, [(self._slots[i], n) for i, n in counts.items()]
        needed = [blocks_for(state.length + count) - len(state.blocks) for state, count in rows]
        self._allocator.require(sum(needed))
        taken: list[int] = []
        for (state, count), num_new in zip(rows, needed, strict=True):
            state.length += count
            if num_new:  # every sixteenth round of a row
                last = state.blocks[-1] if state.blocks else None
                blocks = self._allocator.allocate(num_new, last)
                state.blocks.extend(blocks)
                taken += blocks
        if taken and self._clears_blocks:
            self._clear(taken)
        if taken and self._ahead is not None:
            self._ahead.reach(self._allocator.num_ever_allocated)

    def rollback(self, slot: int, length: int) -> None:
        """Forget every place at or after `length`; a no-op when fewer are cached. Raises
        OutOfBlocksError and changes nothing if no block is free for the copy of a shared block."""
        assert length >= 0
        state = self._slots[slot]
        if length >= state.length:
            return
        num_full, num_begun = divmod(length, self.block_size)
        if num_begun and num_full < len(state.serials):
            self._copy_on_write(state, num_full, num_begun)
        state.length = length
        num_kept = self.spec.blocks_for(length)
        self._allocator.free(reversed(state.blocks[num_kept:]))
        del state.blocks[num_kept:]
        del state.serials[num_full:]

    def publish(self, slot: int, ids: array[int], root: str = "") -> None:
        """Let other slots find the slot's full blocks, whose keys and values came from `ids`."""
        state, size = self._slots[slot], self.block_size
        assert len(ids) <= state.length
        for index in range(len(state.serials), len(ids) // size):
            own_ids = ids[index * size : (index + 1) * size].tobytes()
            key = BlockKey(state.serials[-1] if index else root, own_ids)
            state.blocks[index], serial = self._allocator.register(state.blocks[index], key)
            state.serials.append(serial)

    def match_prefix(self, slot: int, ids: array[int], root: str = "") -> int:
        """Let the slot share the published whole blocks of `ids`, which begin like its own IDs;
        return the number of cached tokens."""
        state, size = self._slots[slot], self.block_size
        num_full = state.length // size
        if len(state.serials) < num_full:
            return state.length
        matched = array("i")
        for index in range(num_full, len(ids) // size):
            own_ids = ids[index * size : (index + 1) * size].tobytes()
            found = self._allocator.find(BlockKey(state.serials[-1] if index else root, own_ids))
            if found is None:
                break
            self._allocator.incref(found.block)
            matched.append(found.block)
            state.serials.append(found.serial)
        if matched:
            self._allocator.free(state.blocks[num_full:])
            state.blocks[num_full:] = matched
            state.length = len(state.blocks) * size
        return state.length

    def evict(self, slot: int) -> None:
        """Make the slot's blocks unfindable for other slots."""
        for block in self._slots[slot].blocks:
            self._allocator.evict(block)

    def evict_all(self) -> None:
        self._allocator.evict_all()

    def _copy_on_write(self, state: _Slot, index: int, num_kept: int) -> None:
        """Prepare the slot to write after the first places of a block that other slots hold or may
        find."""
        block = state.blocks[index]
        if not self._allocator.is_shared(block):
            self._allocator.evict(block)
            return
        (own,) = self._allocator.allocate(1, state.blocks[index - 1] if index else None)
        self._clear((own,))
        kept = self._pool_L2NBHD[:, :, block, :num_kept]
        self._pool_L2NBHD[:, :, own, :num_kept].copy_(kept)
        self._allocator.free((block,))
        state.blocks[index] = own

    def _clear(self, blocks: Sequence[int]) -> None:
        """Zero blocks that change hands. A NaN left by memory or a request must not spread.

        A masked key weighs exactly 0, but 0 * NaN is NaN. One operation clears all blocks. On a
        GPU, an operation over a part of every layer is a launch for every 2 GiB from its first byte
        to its last.
        """
        if self._host_words_PNX is not None:
            self._host_words_PNX[:, blocks] = 0
            return
        blocks_M = on_device(blocks, torch.long, self.shape.device)
        self._words_RX.index_fill_(0, (self._first_rows_P1 + blocks_M).flatten(), 0)


AHEAD_BYTES = 128 * 2**20
"""Maximum bytes that are backed and not taken yet. Once half of them are taken, the rest is filled
up."""
_STEP_BYTES = 8 * 2**20
THREAD_NAME = "kv-backed-ahead"
_SOURCE = Path(__file__).parents[1] / "kernels" / "csrc" / "prefault.c"

_logger = logging.getLogger(__name__)

Touch = Callable[[int, int, int, int], None]
"""Type of `specdec_touch` of csrc/prefault.c: the first byte, planes, bytes between them, bytes of
each."""


class PagePrefault:
    """Backs the blocks of a pool [planes, blocks, bytes], lowest blocks first."""

    def __init__(self, pool: Tensor, touch: Touch) -> None:
        self._pool = pool
        self._touch = touch
        _, self._num_blocks, block_bytes = pool.shape
        self._ahead = max(AHEAD_BYTES // (pool.shape[0] * block_bytes), 2)
        self._num_backed = 0
        self._thread: threading.Thread | None = None

    def reach(self, num_taken: int) -> None:
        """Start backing more blocks if it is time. `num_taken` of the first blocks were ever
        taken."""
        is_done = self._num_backed == self._num_blocks
        if not is_done and num_taken + self._ahead // 2 > self._num_backed:
            self._start_backing(num_taken)

    def _start_backing(self, num_taken: int) -> None:
        """Back further blocks in a thread, unless one is at work or all are backed."""
        if self._thread is not None and self._thread.is_alive():
            return
        first = max(self._num_backed, num_taken)
        self._num_backed = min(num_taken + self._ahead, self._num_blocks)
        if first < self._num_backed:
            part = self._pool[:, first : self._num_backed]
            # Not a daemon: a daemon that returns from C while Python ends would crash the process.
            self._thread = threading.Thread(target=self._back, args=(part,), name=THREAD_NAME)
            self._thread.start()

    def _back(self, part: Tensor) -> None:
        """Back the blocks step by step, so that the end of the process waits for one step only."""
        num_planes, num_blocks, block_bytes = part.shape
        step = max(_STEP_BYTES // (num_planes * block_bytes), 1)
        for first in range(0, num_blocks, step):
            if not threading.main_thread().is_alive():
                return
            blocks = part[:, first : first + step]
            num_bytes = blocks.shape[1] * block_bytes
            self._touch(blocks.data_ptr(), num_planes, blocks.stride(0), num_bytes)


@lru_cache(maxsize=1)
def load_touch() -> Touch | None:
    """Return the touch function. If it cannot be built, log a line and return None; passes then
    take the faults."""
    try:
        library, _ = build_library(_SOURCE)
    except (OSError, subprocess.SubprocessError) as error:
        _logger.info(
            "cannot prefault the memory of the KV cache, so passes take the page faults: %s",
            reason_of(error),
        )
        return None
    touch = library.specdec_touch
    touch.argtypes = [ctypes.c_void_p, *3 * [ctypes.c_int64]]
    touch.restype = None
    return touch
