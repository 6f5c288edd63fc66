"""Blocks are handed out lowest first, never twice, never in part; a sequence's lie together."""

from __future__ import annotations

import random

import pytest

from specdec_core.errors import OutOfBlocksError
from specdec_core.kv_cache.block_allocator import BlockAllocator, BlockKey


def test_the_lowest_free_blocks_come_first() -> None:
    allocator = BlockAllocator(8)
    assert allocator.allocate(5) == [0, 1, 2, 3, 4]
    allocator.free([3, 1])
    assert allocator.allocate(3) == [1, 3, 5]
    assert allocator.num_free == 2


def test_a_refused_call_takes_nothing() -> None:
    allocator = BlockAllocator(4)
    allocator.allocate(2)
    with pytest.raises(OutOfBlocksError, match="3 KV blocks are needed, 2 of 4 are free"):
        allocator.allocate(3)
    assert allocator.num_free == 2
    assert allocator.allocate(2) == [2, 3]


@pytest.mark.parametrize("run_length", [1, 8])
def test_random_use_never_hands_a_block_out_twice(run_length: int) -> None:
    rng = random.Random(0)
    allocator = BlockAllocator(50, run_length)
    held: list[int] = []
    for _ in range(2000):
        if rng.random() < 0.5 and allocator.num_free:
            behind = rng.choice(held) if held else None
            taken = allocator.allocate(rng.randint(1, min(allocator.num_free, 5)), behind)
            free = set(range(50)) - set(held)
            assert set(taken) <= free
            if run_length == 1:
                assert taken == sorted(free)[: len(taken)]
            held += taken
            assert allocator.num_ever_allocated > max(taken)
        elif held:
            rng.shuffle(held)
            returned = [held.pop() for _ in range(rng.randint(1, len(held)))]
            allocator.free(returned)
        assert allocator.num_free == 50 - len(held)


def grown_in_turns(allocator: BlockAllocator, num_sequences: int, length: int) -> list[list[int]]:
    sequences: list[list[int]] = [[] for _ in range(num_sequences)]
    for _ in range(length):
        for blocks in sequences:
            blocks += allocator.allocate(1, blocks[-1] if blocks else None)
    return sequences


def named(allocator: BlockAllocator, blocks: list[int]) -> None:
    parent: int | str = ""
    for block in blocks:
        parent = allocator.register(block, BlockKey(parent, str(block).encode())).serial


def test_sequences_that_grow_in_turns_lie_together() -> None:
    sequences = grown_in_turns(BlockAllocator(64, run_length=8), num_sequences=3, length=10)
    assert [blocks[:8] for blocks in sequences] == [
        list(range(first, first + 8)) for first in (0, 8, 16)
    ]
    assert [blocks[8:] for blocks in sequences] == [[24, 25], [32, 33], [40, 41]]


def test_sequences_lie_together_in_what_others_left_findable() -> None:
    """However often: what is let go in any order does not come apart."""
    rng = random.Random(0)
    allocator = BlockAllocator(64, run_length=8)
    for _ in range(20):
        sequences = grown_in_turns(allocator, num_sequences=5, length=8)
        assert all(blocks == list(range(blocks[0], blocks[0] + 8)) for blocks in sequences)
        for blocks in rng.sample(sequences, len(sequences)):
            named(allocator, blocks[:-1])
            allocator.free(reversed(blocks))


def test_a_sequence_goes_on_in_the_run_of_the_beginning_that_it_found() -> None:
    allocator = BlockAllocator(64, run_length=8)
    first = allocator.allocate(5)
    named(allocator, first[:3])
    allocator.free(reversed(first))
    for block in first[:3]:
        allocator.incref(block)
    assert allocator.allocate(7, after=first[2]) == [3, 4, 5, 6, 7, 8, 9]


def test_the_run_that_was_let_go_first_is_taken_first() -> None:
    """By its last block: one that is still looked for keeps the others of its run."""
    allocator = BlockAllocator(24, run_length=8)
    runs = [allocator.allocate(8) for _ in range(3)]
    for blocks in runs:
        named(allocator, blocks)
    for blocks in (runs[1], runs[0], runs[2]):
        allocator.free(reversed(blocks))
    allocator.incref(8)
    allocator.free([8])
    assert allocator.allocate(9) == [*range(8), 16]
    assert allocator.allocate(7, after=16) == list(range(17, 24)), "the rest of a begun run"
    assert allocator.allocate(1) == [8]


def test_a_run_in_use_keeps_what_can_be_found_in_it_while_others_are_idle() -> None:
    allocator = BlockAllocator(16, run_length=8)
    runs = [allocator.allocate(8) for _ in range(2)]
    for blocks in runs:
        named(allocator, blocks)
        allocator.free(reversed(blocks))
    allocator.incref(0)
    allocator.incref(8)
    allocator.free([8])
    assert allocator.allocate(1) == [8]


def test_what_is_left_of_runs_in_use_is_taken_when_nothing_else_is_free() -> None:
    """First what nobody can find."""
    allocator = BlockAllocator(16, run_length=8)
    first, second = allocator.allocate(3), allocator.allocate(8)
    named(allocator, second)
    allocator.free(second[4:])
    assert allocator.num_free == 9
    third = allocator.allocate(5)
    assert third == [3, 4, 5, 6, 7]
    assert len(allocator.allocate(4)) == 4
    with pytest.raises(OutOfBlocksError, match="1 KV blocks are needed, 0 of 16 are free"):
        allocator.allocate(1)
    allocator.free(first)
    assert allocator.allocate(3) == first


def test_the_last_run_may_be_shorter() -> None:
    allocator = BlockAllocator(11, run_length=8)
    assert allocator.allocate(11) == list(range(11))
    assert allocator.num_ever_allocated == 11
    allocator.free([9, 10, 8])
    assert allocator.allocate(3) == [8, 9, 10]
