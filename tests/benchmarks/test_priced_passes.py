"""Prices of passes from measured tables, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.priced_passes import Bill, PassSize, PricedPasses, read_pass_table
from specdec_core.model import score

MS = {
    (100, 1, 1): 10,
    (100, 1, 5): 14,
    (100, 8, 1): 24,
    (100, 8, 5): 56,
    (200, 1, 1): 12,
    (200, 1, 5): 16,
    (200, 8, 1): 28,
    (200, 8, 5): 60,
}
"""Milliseconds by cached tokens, sequences and tokens of a sequence."""


def write(path: Path, table: dict[tuple[int, int, int], float]) -> Path:
    prices = [
        {"cached": cached, "sequences": sequences, "tokens": tokens, "median_s": ms / 1e3}
        for (cached, sequences, tokens), ms in table.items()
    ]
    path.write_text(json.dumps({"prices": prices}))
    return path


@pytest.mark.parametrize(
    ("size", "ms"),
    [
        (PassSize(1, 1, 100), 10.0),
        (PassSize(1, 3, 300), 12.0),
        (PassSize(1, 7, 700), 16.0),
        (PassSize(8, 8, 8 * 150), 26.0),
        (PassSize(8, 24, 24 * 100), 40.0),
        (PassSize(1, 1, 300), 14.0),
        (PassSize(1, 1, 0), 10.0),
    ],
)
def test_a_pass_is_on_the_lines_through_the_measured_sizes(
    tmp_path: Path, size: PassSize, ms: float
) -> None:
    """By tokens of a sequence, by sequences, by cached tokens; below the least as the least."""
    table = read_pass_table([write(tmp_path / "prices.json", MS)])
    assert table.seconds(size) == pytest.approx(ms / 1e3)


def test_a_later_file_adds_sizes_at_the_pace_of_the_first(tmp_path: Path) -> None:
    """The machine was twice as slow then; what both files have stays as in the first."""
    later = {(100, 1, 1): 20.0, (100, 1, 5): 99.0, (100, 1, 17): 60.0}
    files = [write(tmp_path / "a.json", MS), write(tmp_path / "b.json", later)]
    table = read_pass_table(files, fixed_s=1e-3)
    assert table.seconds(PassSize(1, 17, 1700)) == pytest.approx(31e-3)
    assert table.seconds(PassSize(1, 5, 500)) == pytest.approx(15e-3)


def test_rows_of_prompts_move_the_clock_and_are_no_decoding(tmp_path: Path) -> None:
    table = read_pass_table([write(tmp_path / "prices.json", MS)])
    bill = Bill(table)
    model = PricedPasses(8, bill)
    before_s, slots = bill.priced_s, [model.allocate(), model.allocate()]
    assert bill.decoding_s > 0, "passes are timed at load"
    bill.decoding_s = 0.0
    score(model, [(slots[0], [1] * 5, 1)])
    assert (bill.decoding_s, bill.priced_s - before_s) == (0.0, pytest.approx(14e-3))
    score(model, [(slots[0], [1, 2, 3], 3), (slots[1], [1] * 5, 0)])
    assert bill.decoding_s == pytest.approx(12e-3), "one sequence of three tokens"
