"""Slots keep their places, share the blocks, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specdec_core.errors import OutOfBlocksError
from specdec_core.kv_cache.paged import KVShape, PagedKV
from tests.kv_cache.count_ops import CountOps

SHAPE = KVShape(
    num_layers=2, num_kv_heads=1, head_dim=4, dtype=torch.float32, device=torch.device("cpu")
)


def blocks_for(length: int) -> int:
    return -(-length // 16)


@pytest.mark.parametrize("max_model_len", [128, 131_072])
def test_64_requests_of_100_tokens_need_at_most_1_3_times_their_bytes(max_model_len: int) -> None:
    """Whatever the maximum length: it is not an argument of anything, only the capacity is."""
    kv = PagedKV(SHAPE, num_blocks=max_model_len * 64 // 16 if max_model_len < 1000 else 8192)
    kv.extend({kv.allocate(): 100 for _ in range(64)})
    num_bytes = (kv.num_blocks - kv.num_free_blocks) * kv.block_size * SHAPE.bytes_per_token
    assert num_bytes <= 1.3 * 64 * 100 * SHAPE.bytes_per_token


def test_a_slot_takes_blocks_as_it_grows_and_gives_them_back_as_it_shrinks() -> None:
    kv = PagedKV(SHAPE, num_blocks=10)
    slot = kv.allocate()
    assert kv.num_free_blocks == 10
    for length in (1, 16, 17, 50):
        kv.extend({slot: length - kv.cached_len(slot)})
        assert kv.cached_len(slot) == length
        assert kv.num_free_blocks == 10 - blocks_for(length)
    for length in (60, 50):
        kv.rollback(slot, length)
        assert kv.cached_len(slot) == 50
    for length in (33, 32, 1, 0):
        table = list(kv.block_table(slot))
        kv.rollback(slot, length)
        assert kv.cached_len(slot) == length
        assert kv.num_free_blocks == 10 - blocks_for(length)
        assert list(kv.block_table(slot)) == table[: blocks_for(length)]
    kv.extend({slot: 40})
    kv.free(slot)
    assert kv.num_free_blocks == 10


def test_out_of_blocks_changes_nothing() -> None:
    kv = PagedKV(SHAPE, num_blocks=4)
    first, second = kv.allocate(), kv.allocate()
    kv.extend({first: 20, second: 10})
    with pytest.raises(OutOfBlocksError):
        kv.extend({first: 12, second: 23})
    assert (kv.cached_len(first), kv.cached_len(second)) == (20, 10)
    assert kv.num_free_blocks == 1
    kv.extend({first: 12, second: 22})
    assert kv.num_free_blocks == 0


def test_the_pools_are_those_of_the_shape() -> None:
    """The meta device stands for an accelerator."""
    shape = KVShape(
        num_layers=3, num_kv_heads=2, head_dim=4, dtype=torch.bfloat16, device=torch.device("meta")
    )
    kv = PagedKV(shape, num_blocks=5, block_size=8)
    assert kv.shape == shape
    assert (kv.num_blocks, kv.block_size) == (5, 8)
    for layer in range(3):
        for pool in kv.pools(layer):
            assert (pool.dtype, pool.device, pool.shape) == (shape.dtype, shape.device, (40, 2, 4))
    assert shape.bytes_per_token == 2 * 3 * 2 * 4 * 2


def test_a_slot_number_is_not_used_twice() -> None:
    kv = PagedKV(SHAPE, num_blocks=4)
    slot = kv.allocate()
    kv.free(slot)
    assert kv.allocate() != slot
    with pytest.raises(KeyError):
        kv.cached_len(slot)


@pytest.mark.parametrize("run_length", [1, 8])
def test_random_slots_never_share_a_block(run_length: int) -> None:
    rng = random.Random(0)
    kv = PagedKV(SHAPE, num_blocks=40, run_length=run_length)
    slots: list[int] = []
    for _ in range(1000):
        action = rng.random()
        if action < 0.2 and len(slots) < 10:
            slots.append(kv.allocate())
        elif action < 0.3 and slots:
            kv.free(slots.pop(rng.randrange(len(slots))))
        elif action < 0.5 and slots:
            slot = rng.choice(slots)
            kv.rollback(slot, rng.randint(0, kv.cached_len(slot)))
        elif slots:
            with contextlib.suppress(OutOfBlocksError):
                kv.extend({slot: rng.randint(0, 30) for slot in rng.sample(slots, len(slots) // 2)})
        tables = [block for slot in slots for block in kv.block_table(slot)]
        assert len(set(tables)) == len(tables)
        assert kv.num_free_blocks == 40 - len(tables)
        assert all(len(kv.block_table(s)) == blocks_for(kv.cached_len(s)) for s in slots)


def test_memory_that_no_token_needs_is_not_backed() -> None:
    """4 GiB of capacity, 64 requests of 100 tokens: the resident set follows the tokens."""
    shape = KVShape(
        num_layers=4, num_kv_heads=4, head_dim=64, dtype=torch.float32, device=torch.device("cpu")
    )
    before = resident_bytes()
    kv = PagedKV(shape, num_blocks=(4 << 30) // (16 * shape.bytes_per_token))
    kv.extend({kv.allocate(): 100 for _ in range(64)})
    # Up to one huge page of 2 MiB at either end of each of the 8 pools, and the allocator's own.
    slack = 2 * 8 * (2 << 20) + (16 << 20)
    assert resident_bytes() - before <= 1.3 * 6400 * shape.bytes_per_token + slack


def test_slots_that_grow_in_turns_lie_in_runs() -> None:
    """Also where guesses are taken back behind the end of a block, in every round."""
    kv = PagedKV(SHAPE, num_blocks=40, run_length=8)
    slots = [kv.allocate() for _ in range(3)]
    kv.extend(dict.fromkeys(slots, 20))
    for length in range(20, 128):
        kv.extend(dict.fromkeys(slots, 5 if length < 124 else 1))
        for slot in slots:
            kv.rollback(slot, length + 1)
    assert [list(kv.block_table(slot)) for slot in slots] == [
        list(range(first, first + 8)) for first in (0, 8, 16)
    ]


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("only Linux tells the resident set this way")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("clears", [True, False])
def test_a_block_that_is_taken_is_all_zeros(clears: bool) -> None:
    """Unless whoever reads it reads no place that no token has: then it is left alone. Fresh memory
    usually is, so here it is full of NaN, as reused memory may be."""
    kv = PagedKV(SHAPE, num_blocks=2, clears_blocks=clears)
    pools = [pool for layer in range(SHAPE.num_layers) for pool in kv.pools(layer)]
    for pool in pools:
        pool.fill_(torch.nan)
    kv.extend({kv.allocate(): 5})
    for pool in pools:
        taken = pool[: kv.block_size]
        assert not taken.any() if clears else taken.isnan().all()


def num_operations(kv: PagedKV, num_tokens: int) -> int:
    with CountOps() as mode:
        kv.extend({kv.allocate(): num_tokens})
    return sum(mode.ops.values())


def test_blocks_are_cleared_in_as_many_operations_as_one() -> None:
    """Each is a launch, or several, on a GPU; a round of many rows takes dozens of blocks."""
    kv = PagedKV(replace(SHAPE, device=torch.device("meta")), num_blocks=20)
    assert num_operations(kv, 1) == num_operations(kv, 160) > 0


def test_blocks_on_the_host_are_cleared_without_pytorch() -> None:
    """Its OpenMP threads would go on turning round on cores that the kernels' own threads need."""
    kv = PagedKV(SHAPE, num_blocks=20)
    assert num_operations(kv, 160) == 0


@pytest.mark.parametrize("is_cleared_by_torch", [False, True], ids=["host", "device"])
def test_a_nan_does_not_outlive_its_request(is_cleared_by_torch: bool) -> None:
    kv = PagedKV(SHAPE, num_blocks=1)
    if is_cleared_by_torch:
        kv._host_words_PNX = None  # as elsewhere than on a CPU
    slot = kv.allocate()
    kv.extend({slot: 16})
    keys, values = kv.pools(1)
    keys[:16] = values[:16] = float("nan")
    kv.free(slot)
    kv.extend({kv.allocate(): 1})
    assert not keys.any()
    assert not values.any()
