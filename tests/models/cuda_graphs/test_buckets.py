"""Shapes of passes: few, large enough, and inside what attention takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from specdec_core.layers.attention.metadata import FAST_ATTENTION, AttentionShape, SizeRange
from specdec_core.model import ForwardInput
from specdec_core.worker.cuda_graphs.buckets import (
    Bucket,
    bucket_for,
    most_logits,
    rounded_blocks,
    rounded_queries,
    rounded_rows,
)

MOST = most_logits(1024)


class FedRow(NamedTuple):
    slot: int
    start: int
    count: int
    num_logits: int = 0


def bucket_of(
    pieces: Sequence[FedRow],
    attention: AttentionShape,
    max_logits: int = MOST,
    num_ahead: int = 0,
    reads_blocks: bool = False,
) -> Bucket | None:
    """With blocks of 16 tokens."""
    rows = [(slot, range(count), wanted) for slot, _, count, wanted in pieces]
    batch = ForwardInput.of(rows, starts=[piece.start for piece in pieces])
    return bucket_for(batch, 16, attention, max_logits, num_ahead, reads_blocks)


def test_rows_are_few_and_large_enough() -> None:
    sizes = sorted({rounded_rows(count) for count in range(1, 41)})
    assert sizes == [1, 2, 4, 8, 16, 24, 32, 40]
    assert all(rounded_rows(count) >= count for count in range(1, 129))


def test_tokens_of_a_row_are_its_own_up_to_nine() -> None:
    sizes = sorted({rounded_queries(count) for count in range(1, 34)})
    assert sizes == [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 21, 25, 29, 33]
    assert all(rounded_queries(count) >= count for count in range(1, 34))


def test_gathered_blocks_double_in_four_steps() -> None:
    sizes = sorted({rounded_blocks(count, False) for count in range(1, 129)})
    assert sizes == [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128]
    assert all(count <= rounded_blocks(count, False) for count in range(1, 1000))
    assert all(rounded_blocks(count, False) <= 1.25 * count for count in range(16, 1000))


def test_blocks_that_are_read_in_place_double() -> None:
    sizes = sorted({rounded_blocks(count, True) for count in range(1, 129)})
    assert sizes == [4, 8, 16, 32, 64, 128]
    assert all(count <= rounded_blocks(count, True) for count in range(1, 1000))
    long = [FedRow(0, 600, 1, 1)]
    assert bucket_of(long, FAST_ATTENTION) == Bucket(1, 1, 40, 1)
    assert bucket_of(long, FAST_ATTENTION, reads_blocks=True) == Bucket(1, 1, 64, 1)


@pytest.mark.parametrize(
    ("larger", "reads_blocks", "may"),
    [
        (Bucket(32, 3, 8, 96), False, True),
        (Bucket(32, 5, 8, 160), False, False),
        (Bucket(24, 4, 8, 96), False, True),
        (Bucket(16, 6, 8, 96), False, False),
        (Bucket(32, 3, 16, 96), False, False),
        (Bucket(32, 3, 16, 96), True, True),
        (Bucket(32, 3, 32, 96), True, False),
        (Bucket(32, 3, 8, 32), False, False),
    ],
    ids=[
        "more rows",
        "twice the tokens and more",
        "more queries",
        "fewer rows",
        "more blocks to gather",
        "more blocks in place",
        "too many blocks",
        "fewer logits",
    ],
)
def test_a_shape_stands_in_for_a_smaller_one_that_takes_about_as_long(
    larger: Bucket, reads_blocks: bool, may: bool
) -> None:
    assert larger.may_stand_in(Bucket(24, 3, 8, 72), reads_blocks) is may
    assert Bucket(32, 2, 8, 64).may_stand_in(Bucket(1, 1, 8, 1), reads_blocks), "both are short"


def test_a_bucket_holds_every_token_of_its_rectangle() -> None:
    """A short row beside a long one has padding behind its end: there must be blocks for that."""
    rows = [FedRow(0, 62, 1, 1), FedRow(1, 10, 5, 5), FedRow(2, 3, 2, 2)]
    assert bucket_of(rows, FAST_ATTENTION) == Bucket(4, 5, 8, 20)
    alone = [FedRow(0, 62, 1, 1)]
    assert bucket_of(alone, FAST_ATTENTION) == Bucket(1, 1, 4, 1)
    assert bucket_of(alone, FAST_ATTENTION, num_ahead=2) == Bucket(1, 1, 8, 1)


def test_one_logit_a_row_is_a_shape_of_its_own() -> None:
    rows = [FedRow(slot, 5, 2, 1) for slot in range(3)]
    assert bucket_of(rows, FAST_ATTENTION) == Bucket(4, 2, 4, 4)


def test_a_shape_has_no_more_logits_than_one_call_chooses() -> None:
    """One row proposes 33 tokens and 39 propose none: a logit for each of 1,320 tokens is more than
    anybody asks for."""
    rows = [FedRow(0, 5, 33, 33), *(FedRow(slot, 5, 1, 1) for slot in range(1, 40))]
    assert bucket_of(rows, FAST_ATTENTION) == Bucket(40, 33, 4, 1024)
    assert bucket_of(rows, FAST_ATTENTION, most_logits(50)) == Bucket(40, 33, 4, 128)
    many = [FedRow(slot, 5, 33, 33) for slot in range(4)]
    assert bucket_of(many, FAST_ATTENTION, most_logits(50)) is None


@pytest.mark.parametrize(
    "rows",
    [
        [FedRow(0, 0, 34)],
        [FedRow(slot, 0, 1) for slot in range(129)],
        [FedRow(0, 0, 2), FedRow(0, 2, 2)],
    ],
    ids=["prefill", "too many rows", "a slot twice"],
)
def test_other_passes_have_no_fixed_shape(rows: list[FedRow]) -> None:
    assert bucket_of(rows, FAST_ATTENTION) is None


def test_exact_shapes_of_attention_are_kept() -> None:
    exact = AttentionShape(queries=SizeRange(4, 12), key_lens=(128, 512))
    assert bucket_of([FedRow(0, 0, 1, 1)], exact) == Bucket(1, 4, 8, 1)
    assert bucket_of([FedRow(0, 200, 11, 1)], exact) == Bucket(1, 12, 32, 1)
    assert bucket_of([FedRow(0, 0, 13, 1)], exact) is None
    assert exact.queries.high < sys.maxsize
