"""Which class of sizes is kept to."""

from __future__ import annotations

import pytest

from specdec_core.batch_invariance.size_classes import (
    ClassTable,
    SizeSet,
    cheapest_run,
    fastest_class,
)
from specdec_core.layers.attention.metadata import ANY_ATTENTION, AttentionShape, SizeRange


def classes(*ends: int) -> list[bool]:
    """Whether a size equals the next, for classes that end at `ends`."""
    return [size not in ends for size in range(1, ends[-1])]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((128,), (1, 128)),
        ((1, 128), (2, 128)),
        ((4, 128), (5, 128)),
        ((32, 128), (1, 32)),
        ((64, 128), (1, 64)),
        ((1,), (1, 1)),
    ],
)
def test_the_class_that_serves_small_and_large_calls_cheaply(
    ends: tuple[int, ...], expected: tuple[int, int]
) -> None:
    found = cheapest_run(classes(*ends), typical_sizes=(1, 8, 40), call_cost=16)
    assert found == SizeRange(*expected)


def test_every_size_of_its_own_class_still_gives_a_class() -> None:
    found = cheapest_run([False] * 7, typical_sizes=(1, 8), call_cost=16)
    assert found.low == found.high == 8


def test_key_lengths_round_up() -> None:
    shape = AttentionShape(queries=SizeRange(1, 8), key_lens=(64,))
    assert [shape.key_len(n) for n in (1, 64, 65, 128)] == [64, 64, 128, 128]
    uneven = AttentionShape(queries=SizeRange(1, 8), key_lens=(64, 256, 512))
    asked = (1, 64, 65, 257, 512, 513, 577, 1024, 1025)
    assert [uneven.key_len(n) for n in asked] == [64, 64, 256, 512, 512, 576, 768, 1024, 1088]


def size_set(*ranges: tuple[int, int]) -> SizeSet:
    return SizeSet(tuple(SizeRange(*ends) for ends in ranges))


def test_a_size_is_raised_to_the_next_of_its_class() -> None:
    sizes = size_set((3, 8), (64, 96))
    assert [sizes.fit(size) for size in (1, 3, 8, 9, 64, 96)] == [3, 3, 8, 64, 64, 96]
    assert sizes.high == 96
    assert str(sizes) == "3-8/64-96"


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([size_set((1, 640))], 0),
        ([size_set((1, 32)), size_set((33, 640))], 1),
        ([size_set((1, 8), (33, 640)), size_set((9, 32))], 0),
        ([size_set((640, 640)), size_set((1, 256))], 1),
        ([size_set((1, 1), (128, 128)), size_set((2, 127), (129, 640))], 1),
    ],
)
def test_a_gpus_class_reads_weights_seldom_and_pads_few_rows_little(
    classes: list[SizeSet], expected: int
) -> None:
    found = fastest_class(classes, typical_sizes=(1, 8, 40, 128, 640, 4096), call_cost=256)
    assert found == classes[expected]


@pytest.mark.parametrize(
    ("highs", "expected"), [((), 0), ((32, 640), 32), ((128,), 128), ((640, 512), 0)]
)
def test_a_tile_is_what_the_narrowest_linear_takes_unless_that_is_a_whole_pass(
    highs: tuple[int, ...], expected: int
) -> None:
    """A verification budget is raised to whole tiles."""
    linears = tuple((f"shape {high}", size_set((1, high))) for high in highs)
    assert ClassTable(linears=linears, attention=ANY_ATTENTION).tile_rows == expected
