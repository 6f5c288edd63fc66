"""The left-padded batch: realignment against a per-row reference, and what it may not cost."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.algorithms.padded.cache import PaddedKV, PaddedRow, stack
from specdec_core.algorithms.padded.invariants import (
    check_invariants,
    check_pending,
    check_positions,
    check_rectangle,
)
from specdec_core.kv_cache.paged import KVShape
from tests.kv_cache.count_ops import CountOps

SHAPE = KVShape(
    num_layers=3, num_kv_heads=2, head_dim=5, dtype=torch.float32, device=torch.device("cpu")
)
Contents = list[torch.Tensor]
"""What each row caches: [planes, tokens, heads, numbers]."""


def fill(kv: PaddedKV, counts: list[int], contents: Contents | None = None) -> Contents:
    """Append random tokens to every row; returns the rows' contents."""
    before = list(kv.ends)
    kv.extend(dict(enumerate(counts)))
    heads = (kv.shape.num_kv_heads, kv.shape.head_dim)
    added = [torch.randn(2 * kv.shape.num_layers, count, *heads) for count in counts]
    for row, (start, tokens) in enumerate(zip(before, added, strict=True)):
        for plane, numbers in enumerate(tokens):
            _pool(kv, plane)[row, start : start + counts[row]] = numbers
    if contents is None:
        return added
    return [torch.cat(pair, dim=1) for pair in zip(contents, added, strict=True)]


def _pool(kv: PaddedKV, plane: int) -> torch.Tensor:
    pool = kv.pools(plane // 2)[plane % 2]
    return pool.view(kv.num_rows, kv.num_columns, *pool.shape[1:])


def read(kv: PaddedKV) -> Contents:
    planes = torch.stack([_pool(kv, plane) for plane in range(2 * kv.shape.num_layers)])
    spans = zip(kv.starts, kv.ends, strict=True)
    return [planes[:, row, start:end] for row, (start, end) in enumerate(spans)]


def assert_equal(actual: Contents, expected: Contents) -> None:
    for actual_row, expected_row in zip(actual, expected, strict=True):
        assert torch.equal(actual_row, expected_row)


rows_of_lengths = st.lists(st.integers(1, 90), min_size=1, max_size=5)


@settings(max_examples=60)
@given(content_lens=rows_of_lengths, data=st.data())
def test_rounds_of_realignment_equal_a_per_row_reference(
    content_lens: list[int], data: st.DataObject
) -> None:
    """Row i moves by delta_i = L' - L - a_i; what it caches and I1 to I3 stay."""
    kv = PaddedKV(SHAPE, content_lens)
    contents = fill(kv, [length - 1 for length in content_lens])
    check_invariants(kv, content_lens)
    for _ in range(3):
        drafted = [data.draw(st.integers(0, 8)) for _ in content_lens]
        contents = fill(kv, [count + 1 for count in drafted], contents)
        committed = [data.draw(st.integers(1, count + 1)) for count in drafted]
        columns = max(content_lens)
        starts = dict(enumerate(kv.starts))
        content_lens = [c + a for c, a in zip(content_lens, committed, strict=True)]
        for row, length in enumerate(content_lens):
            kv.rollback(row, length - 1)
            contents[row] = contents[row][:, : length - 1]
        kept = data.draw(st.sets(st.sampled_from(range(len(content_lens))), min_size=1).map(sorted))
        content_lens = [content_lens[row] for row in kept]
        contents = [contents[row] for row in kept]
        is_whole = len(kept) == kv.num_rows
        num_bytes = kv.realign(kept, content_lens)
        check_invariants(kv, content_lens)
        assert_equal(read(kv), contents)
        if is_whole and num_bytes:
            deltas = [max(content_lens) - columns - committed[row] for row in kept]
            assert kv.starts == [
                starts[row] + delta for row, delta in zip(kept, deltas, strict=True)
            ]
        num_cached = sum(length - 1 for length in content_lens)
        assert num_bytes in (0, num_cached * SHAPE.bytes_per_token)


@pytest.mark.parametrize(
    ("content_lens", "committed"), [([9], [4]), ([9, 9, 9], [2, 2, 2]), ([30, 4, 9], [5, 5, 5])]
)
def test_one_row_or_equal_commits_move_nothing(
    content_lens: list[int], committed: list[int]
) -> None:
    kv = PaddedKV(SHAPE, content_lens)
    contents = fill(kv, [length - 1 for length in content_lens])
    contents = fill(kv, committed, contents)
    memory = kv.pools(0)[0].data_ptr()
    lengths = [length + a for length, a in zip(content_lens, committed, strict=True)]
    assert kv.realign(range(len(lengths)), lengths) == 0
    assert kv.pools(0)[0].data_ptr() == memory
    assert_equal(read(kv), contents)
    check_invariants(kv, lengths)


def test_a_row_that_caches_less_of_its_content_is_padded_by_its_content() -> None:
    """A draft lacks one token more where everything was accepted: that must not move the others."""
    kv = PaddedKV(SHAPE, [6, 3, 5])
    contents = fill(kv, [5, 1, 0])
    assert kv.realign(range(3), [9, 6, 8]) == 0
    assert kv.realign(range(3), [9, 7, 8]) == 6 * SHAPE.bytes_per_token
    assert kv.starts == [0, 2, 1]
    assert_equal(read(kv), contents)
    check_rectangle(kv, [9, 7, 8])
    check_positions(kv)


def test_realignment_takes_as_many_operations_for_many_rows_and_layers_as_for_few() -> None:
    """Defect 11: the published code loops over layers and rows, and waits for the device."""
    counts = []
    for num_layers, num_rows in ((1, 2), (6, 9)):
        shape = KVShape(
            num_layers=num_layers,
            num_kv_heads=1,
            head_dim=4,
            dtype=torch.bfloat16,
            device=torch.device("cpu"),
        )
        kv = PaddedKV(shape, [8] * num_rows)
        kv.extend(dict.fromkeys(range(num_rows), 7))
        with CountOps() as mode:
            kv.extend(dict.fromkeys(range(num_rows), 1))
            assert kv.realign(range(num_rows), [9, *[10] * (num_rows - 1)]) > 0
        counts.append(mode.ops)
    assert counts[0] == counts[1]
    assert counts[0]["aten::index_select"] == 1
    assert not {"aten::_local_scalar_dense", "aten::item"} & set(counts[0])


def test_a_row_alone_keeps_only_its_own_memory() -> None:
    """Defect 11: a view of one row would keep the whole parent batch alive."""
    kv = PaddedKV(SHAPE, [1000, 40, 900, 7])
    contents = fill(kv, [999, 39, 899, 6])
    parent_bytes = _num_bytes(kv)
    single = stack([PaddedRow(kv, 1)], [40])
    assert_equal(read(single), contents[1:2])
    assert _num_bytes(single) <= parent_bytes / 4 / 10
    parent = weakref.ref(kv)
    del kv
    gc.collect()
    assert parent() is None


def _num_bytes(kv: PaddedKV) -> int:
    return kv.pools(0)[0].untyped_storage().nbytes()


@settings(max_examples=30)
@given(lens_of_batches=st.lists(rows_of_lengths, min_size=1, max_size=3), data=st.data())
def test_rows_of_several_batches_are_stacked_in_order(
    lens_of_batches: list[list[int]], data: st.DataObject
) -> None:
    rows, contents = [], []
    for content_lens in lens_of_batches:
        kv = PaddedKV(SHAPE, content_lens)
        cached = fill(kv, [length - 1 for length in content_lens])
        rows += [(PaddedRow(kv, row), cached[row]) for row in range(kv.num_rows)]
    chosen = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=6, unique_by=id))
    contents = [content for _, content in chosen]
    lengths = [content.shape[1] + 1 for content in contents]
    stacked = stack([row for row, _ in chosen], lengths)
    assert_equal(read(stacked), contents)
    check_invariants(stacked, lengths)
    for (kv, row), content in rows:
        assert_equal([read(kv)[row]], [content])


def test_a_batch_that_outgrows_its_room_keeps_its_contents() -> None:
    kv = PaddedKV(SHAPE, [50, 3])
    contents = fill(kv, [49, 2])
    for _ in range(5):
        contents = fill(kv, [40, 40], contents)
    assert kv.num_columns >= 249
    assert_equal(read(kv), contents)


def test_rows_that_fill_the_last_column_are_moved_whole() -> None:
    kv = PaddedKV(SHAPE, [50, 10])
    room = kv.num_columns - 50
    contents = fill(kv, [50 + room, 10 + room])
    assert kv.width == kv.num_columns
    lengths = [50 + room + 1, 10 + room + 3]
    assert kv.realign(range(2), lengths) > 0
    assert_equal(read(kv), contents)


def test_numbers_that_fill_no_whole_words_are_moved_too() -> None:
    """5 numbers of 4 bytes: copies go by words of 8 where they can."""
    shape = dataclasses.replace(SHAPE, num_kv_heads=1)
    kv = PaddedKV(shape, [6, 3])
    contents = fill(kv, [5, 2])
    assert kv.realign(range(2), [7, 5]) == 7 * shape.bytes_per_token
    assert_equal(read(kv), contents)


def test_places_hide_the_padding_and_count_from_0() -> None:
    kv = PaddedKV(SHAPE, [2, 4])
    assert kv.positions(5).tolist() == [[-2, -1, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_the_memory_is_that_of_the_rows_and_their_room() -> None:
    shape = dataclasses.replace(SHAPE, dtype=torch.bfloat16)
    kv = PaddedKV(shape, [2, 4])
    assert kv.num_columns == 64
    assert _num_bytes(kv) == 2 * 64 * shape.bytes_per_token
    assert {pool.dtype for layer in range(3) for pool in kv.pools(layer)} == {torch.bfloat16}


def test_a_batch_without_rows_is_empty() -> None:
    kv = PaddedKV(SHAPE, [])
    assert (kv.num_rows, kv.width, kv.realign([], [])) == (0, 0, 0)


def test_everything_is_made_on_the_device_of_the_shape() -> None:
    """The meta device stands for an accelerator."""
    kv = PaddedKV(dataclasses.replace(SHAPE, device=torch.device("meta")), [6, 3])
    kv.extend({0: 5, 1: 2})
    assert kv.positions(6).is_meta
    assert kv.realign(range(2), [7, 5]) > 0
    assert stack([PaddedRow(kv, 1)], [5]).pools(0)[0].is_meta


def test_a_rollback_never_caches_more() -> None:
    kv = PaddedKV(SHAPE, [3, 5])
    fill(kv, [2, 4])
    kv.rollback(0, 5)
    kv.rollback(1, 4)
    assert kv.cached_lens == [2, 4]
    kv.rollback(1, 3)
    assert kv.cached_lens == [2, 3]


def test_the_invariants_name_what_is_broken() -> None:
    kv = PaddedKV(SHAPE, [3, 5])
    fill(kv, [2, 4])
    check_invariants(kv, [3, 5])
    with pytest.raises(AssertionError, match="I3"):
        check_pending(kv, [4, 5])
    with pytest.raises(AssertionError, match="I1"):
        check_rectangle(kv, [4, 5])
    kv.starts[0] += 1
    kv.cached_lens[0] -= 1
    check_positions(kv)
    with pytest.raises(AssertionError, match="I3"):
        check_invariants(kv, [3, 5])


def test_no_number_of_a_new_batch_is_nan() -> None:
    """A masked key weighs exactly 0, but 0 * NaN is NaN."""
    for _ in range(3):
        assert PaddedKV(SHAPE, [70, 1]).pools(1)[1].isfinite().all()
