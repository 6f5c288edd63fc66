"""Blocks are handed out lowest first, never twice, and never in part."""

from __future__ import annotations

import random

import pytest

from specdec_core.errors import OutOfBlocksError
from specdec_core.kv.blocks import BlockAllocator


def test_the_lowest_free_blocks_come_first() -> None:
    allocator = BlockAllocator(8)
    assert allocator.take(5) == [0, 1, 2, 3, 4]
    allocator.give_back([3, 1])
    assert allocator.take(3) == [1, 3, 5]
    assert allocator.num_free == 2


def test_a_refused_call_takes_nothing() -> None:
    allocator = BlockAllocator(4)
    allocator.take(2)
    with pytest.raises(OutOfBlocksError, match="3 KV blocks are needed, 2 of 4 are free"):
        allocator.take(3)
    assert allocator.num_free == 2
    assert allocator.take(2) == [2, 3]


def test_random_use_never_hands_a_block_out_twice() -> None:
    rng = random.Random(0)
    allocator = BlockAllocator(50)
    held: list[int] = []
    for _ in range(2000):
        if rng.random() < 0.5 and allocator.num_free:
            taken = allocator.take(rng.randint(1, min(allocator.num_free, 5)))
            free = set(range(50)) - set(held)
            assert taken == sorted(free)[: len(taken)]
            held += taken
        elif held:
            rng.shuffle(held)
            returned = [held.pop() for _ in range(rng.randint(1, len(held)))]
            allocator.give_back(returned)
        assert allocator.num_free == 50 - len(held)
