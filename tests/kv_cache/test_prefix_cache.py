"""Slots share full blocks of equal beginnings, never write into them, and lose none."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import pytest
import torch

from specdec_core.errors import OutOfBlocksError
from specdec_core.kv_cache.paged import KVShape, PagedKV

SIZE = 4
SHAPE = KVShape(
    num_layers=2, num_kv_heads=1, head_dim=1, dtype=torch.float64, device=torch.device("cpu")
)
A, B, C = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)


class World:
    """Every cached number tells all the ids up to its place, so that a wrong block shows."""

    def __init__(self, num_blocks: int = 100, run_length: int = 1) -> None:
        self.kv = PagedKV(SHAPE, num_blocks, SIZE, run_length=run_length)
        self.ids: dict[int, list[int]] = {}
        self.roots: dict[int, str] = {}

    def begin(self, root: str = "") -> int:
        slot = self.kv.allocate()
        self.ids[slot] = []
        self.roots[slot] = root
        return slot

    def cached(self, ids: Sequence[int], root: str = "") -> int:
        """A slot that has computed and published these."""
        slot = self.begin(root)
        self.feed(slot, ids)
        self.publish(slot)
        return slot

    def feed(self, slot: int, ids: Sequence[int]) -> None:
        start = self.kv.cached_len(slot)
        self.kv.extend({slot: len(ids)})
        self.ids[slot] += ids
        numbers = torch.tensor(self.numbers(slot)[start:], dtype=torch.float64)
        for pool in self.pools():
            pool[self.places(slot)[start:]] = numbers.view(-1, 1, 1)

    def publish(self, slot: int) -> None:
        self.kv.publish(slot, array("i", self.ids[slot]), self.roots[slot])

    def match_prefix(self, slot: int, ids: Sequence[int]) -> int:
        """How many of `ids`, which go on behind the slot's own, were found."""
        before = len(self.ids[slot])
        wanted = [*self.ids[slot], *ids]
        length = self.kv.match_prefix(slot, array("i", wanted), self.roots[slot])
        self.ids[slot] = wanted[:length]
        self.check()
        return length - before

    def rollback(self, slot: int, length: int) -> None:
        self.kv.rollback(slot, length)
        del self.ids[slot][length:]

    def free(self, slot: int) -> None:
        self.kv.free(slot)
        del self.ids[slot]

    def pools(self) -> list[torch.Tensor]:
        return [pool for layer in range(SHAPE.num_layers) for pool in self.kv.pools(layer)]

    def places(self, slot: int) -> list[int]:
        table = self.kv.block_table(slot)
        return [table[i // SIZE] * SIZE + i % SIZE for i in range(self.kv.cached_len(slot))]

    def numbers(self, slot: int) -> list[float]:
        ids = self.ids[slot]
        prefixes = (ids[: index + 1] for index in range(len(ids)))
        return [float(hash((self.roots[slot], *prefix)) % 2**50) for prefix in prefixes]

    def check(self) -> None:
        """Every slot reads what its ids give; what no slot holds is free."""
        for slot in self.ids:
            for pool in self.pools():
                assert pool[self.places(slot)].flatten().tolist() == self.numbers(slot)
        held = {block for slot in self.ids for block in self.kv.block_table(slot)}
        assert self.kv.num_free_blocks == self.kv.num_blocks - len(held)


def test_a_second_slot_shares_the_full_blocks_of_an_equal_beginning() -> None:
    world = World()
    first, second = world.cached((*A, *B, 9)), world.begin()
    assert world.match_prefix(second, (*A, *B, *C)) == 8
    assert world.kv.block_table(second) == world.kv.block_table(first)[:2]
    assert world.kv.num_free_blocks == 97


def test_what_nobody_holds_any_more_is_found_and_counts_as_free() -> None:
    world = World()
    world.free(world.cached((*A, *B)))
    assert world.kv.num_free_blocks == 100
    assert world.match_prefix(world.begin(), (*A, *B)) == 8
    assert world.kv.num_free_blocks == 98


def test_only_what_was_published_is_found() -> None:
    world = World()
    slot = world.begin()
    world.feed(slot, (*A, *B))
    assert world.match_prefix(world.begin(), (*A, *B)) == 0
    world.kv.publish(slot, array("i", (*A, 5, 6, 7)))
    assert world.match_prefix(world.begin(), (*A, *B)) == 4


def test_equal_ids_behind_another_beginning_are_another_block() -> None:
    world = World()
    world.cached((*A, *C))
    world.cached(B)
    assert world.match_prefix(world.begin(), (*B, *C)) == 4


def test_other_roots_share_nothing() -> None:
    world = World()
    world.cached((*A, *B), root="one")
    assert world.match_prefix(world.begin(root="two"), (*A, *B)) == 0
    assert world.match_prefix(world.begin(), (*A, *B)) == 0
    assert world.match_prefix(world.begin(root="one"), (*A, *B)) == 8


def test_adoption_goes_on_behind_what_a_slot_has() -> None:
    """Chunk after chunk, also where a chunk ended inside of a block."""
    world = World()
    world.cached((*A, *B, *C))
    slot = world.begin()
    assert world.match_prefix(slot, (*A, 5, 6)) == 4
    world.feed(slot, (5, 6))
    assert world.match_prefix(slot, (7,)) == 0
    assert world.match_prefix(slot, (7, 8, *C)) == 6
    assert len(world.kv.block_table(slot)) == 3


def test_a_slot_with_full_blocks_that_it_keeps_to_itself_adopts_nothing() -> None:
    """Those behind them would be found by a parent that it does not hold."""
    world = World()
    world.cached((*A, *B))
    slot = world.begin()
    world.feed(slot, A)
    assert world.match_prefix(slot, B) == 0
    world.publish(slot)
    assert world.match_prefix(slot, B) == 4


def test_two_slots_that_computed_the_same_keep_one_block() -> None:
    world = World()
    slots = [world.begin(), world.begin()]
    for slot in slots:
        world.feed(slot, (*A, *B))
    for slot in slots:
        world.publish(slot)
    assert world.kv.block_table(slots[0]) == world.kv.block_table(slots[1])
    world.check()
    for slot in slots:
        world.free(slot)
    world.check()


def test_a_write_behind_a_rollback_spares_those_who_share_the_block() -> None:
    world = World()
    first = world.cached((*A, *B))
    second = world.begin()
    world.match_prefix(second, (*A, *B))
    world.rollback(second, 6)
    world.feed(second, (31, 32))
    world.check()
    world.publish(second)
    assert world.match_prefix(world.begin(), (*A, 5, 6, 31, 32)) == 8
    world.rollback(first, 5)
    world.feed(first, (41,))
    world.check()


def test_a_block_that_is_written_again_is_not_found_by_its_old_ids() -> None:
    world = World()
    slot = world.cached((*A, *B))
    world.rollback(slot, 5)
    world.feed(slot, (31, 32, 33))
    assert world.match_prefix(world.begin(), (*A, *B)) == 4


def test_a_copy_that_has_no_room_changes_nothing() -> None:
    world = World(num_blocks=2)
    world.cached((*A, *B))
    slot = world.begin()
    world.match_prefix(slot, (*A, *B))
    with pytest.raises(OutOfBlocksError):
        world.rollback(slot, 6)
    world.check()


def test_unnamed_blocks_go_first_then_the_ends_of_what_was_let_go_first() -> None:
    world = World(num_blocks=6)
    world.free(world.cached((*A, *B)))
    world.free(world.cached(C))
    slot = world.begin()
    world.feed(slot, range(20, 33))
    for wanted, found in (((*A, *B), 4), (C, 4)):
        probe = world.begin()
        assert world.match_prefix(probe, wanted) == found
        world.free(probe)
    world.feed(slot, range(33, 40))
    assert world.match_prefix(world.begin(), A) == 0


def test_what_a_failed_slot_holds_is_not_found() -> None:
    world = World()
    other = world.cached(A)
    slot = world.begin()
    world.match_prefix(slot, A)
    world.feed(slot, B)
    world.publish(slot)
    world.kv.evict(slot)
    assert world.match_prefix(world.begin(), (*A, *B)) == 0
    world.free(slot)
    world.free(other)
    assert world.kv.num_free_blocks == 100


def test_a_nan_that_a_cached_block_holds_does_not_reach_who_takes_the_block() -> None:
    world = World(num_blocks=1)
    slot = world.cached(A)
    for pool in world.pools():
        pool[:] = float("nan")
    world.free(slot)
    world.kv.extend({world.begin(): 1})
    assert all(not pool.any() for pool in world.pools())


def test_a_copy_takes_only_the_places_that_are_kept() -> None:
    world = World()
    world.cached(A)
    slot = world.begin()
    world.match_prefix(slot, A)
    for pool in world.pools():
        pool[world.places(slot)[1:]] = float("nan")
    world.rollback(slot, 1)
    (block,) = world.kv.block_table(slot)
    assert all(not pool[block * SIZE + 1 : block * SIZE + SIZE].any() for pool in world.pools())


def test_a_copy_lies_in_the_run_of_the_block_before_it() -> None:
    world = World(run_length=8)
    world.cached((*A, *B))
    slot = world.begin()
    world.match_prefix(slot, (*A, *B))
    world.rollback(slot, 6)
    assert list(world.kv.block_table(slot)) == [0, 2]


@pytest.mark.covering(1)
@pytest.mark.parametrize("num_blocks", [6, 40, 12])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("run_length", [1, 8])
def test_random_use_reads_right_and_never_needs_more_than_without_sharing(
    seed: int, num_blocks: int, run_length: int
) -> None:
    """Whoever counts every slot's blocks as if nothing were shared is never refused."""
    rng = random.Random(seed)
    world = World(num_blocks, run_length)
    beginnings = [[rng.randrange(3) for _ in range(24)] for _ in range(3)]
    num_matched = 0
    for _ in range(1500):
        num_matched += random_step(world, rng, beginnings)
        world.check()
        assert world.kv.num_free_blocks >= room(world)
    assert num_matched > (50 if run_length == 1 else 30)
    for slot in list(world.ids):
        world.free(slot)
    assert world.kv.num_free_blocks == num_blocks


def room(world: World) -> int:
    """Free blocks if nothing were shared."""
    return world.kv.num_blocks - sum(-(-len(ids) // SIZE) for ids in world.ids.values())


def random_step(world: World, rng: random.Random, beginnings: list[list[int]]) -> int:
    """One thing that a replica may do; returns how many tokens were matched."""
    if not world.ids or rng.random() < 0.1:
        world.begin(root=rng.choice(["", "", "salt"]))
    slot = rng.choice(list(world.ids))
    ids, action = world.ids[slot], rng.random()
    if action < 0.1:
        world.free(slot)
    elif action < 0.2:
        world.rollback(slot, rng.randint(0, len(ids)))
    elif action < 0.21:
        world.kv.evict(slot)
    elif action < 0.5:
        some = ids[: rng.randint(0, 40)]
        world.kv.publish(slot, array("i", some), world.roots[slot])
    else:
        matching = [begun for begun in beginnings if begun[: len(ids)] == ids]
        going_on = rng.choice(matching)[len(ids) :] if matching else [rng.randrange(3)] * 5
        new_ids = going_on[: rng.randint(0, 12)]
        if -(-(len(ids) + len(new_ids)) // SIZE) - -(-len(ids) // SIZE) <= room(world):
            matched = world.match_prefix(slot, new_ids)
            world.feed(slot, new_ids[matched:])
            return matched
    return 0
