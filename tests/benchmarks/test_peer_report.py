"""Medians and ratios of made-up runs, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.cells import Cell
from benchmarks.peers.plot import plot
from benchmarks.peers.report import cells_table, comparisons, comparisons_table, records
from benchmarks.peers.rounds import Run

OURS = Cell("specdec", "plain", None, 0, 8)
OUR_NGRAM = Cell("specdec", "ngram", None, 4, 8)
OUR_HYBRID = Cell("specdec", "hybrid", "d", 4, 8)
PEER = Cell("vllm", "plain", None, 0, 8)
PEER_NGRAM = Cell("vllm", "ngram", None, 4, 8)


def runs(*speeds: float, ids: tuple[int, ...] = (1, 2)) -> list[Run]:
    return [
        Run(
            seconds=100 / speed,
            num_tokens=100,
            token_ids=[[token] for token in ids],
            figures={"acceptance_length": speed / 10},
            stolen=0.0,
            others_cpu_s=0.0,
        )
        for speed in speeds
    ]


ALL = {
    OURS: runs(100, 50, 90),
    OUR_NGRAM: runs(120, 80, 150),
    OUR_HYBRID: runs(110, 70, 100),
    PEER: runs(50, 20, 45),
    PEER_NGRAM: runs(60, 20, 50, ids=(1, 3)),
}


def test_a_ratio_is_the_median_of_the_ratios_turn_by_turn() -> None:
    (found,) = comparisons(ALL)
    assert found["plain_ratio"] == pytest.approx(2.0), "of 2, 2.5 and 2: not 90 over 45 by medians"
    assert found["best"] == OUR_NGRAM.name, "median 120, not 100"
    assert found["their_best"] == PEER_NGRAM.name, "median 50, not 45"
    assert found["best_ratio"] == pytest.approx(3.0), "of 2, 4 and 3"


def test_the_best_of_ours_speculates_and_a_peers_best_may_be_plain() -> None:
    slow = {**ALL, OUR_NGRAM: runs(10), OUR_HYBRID: runs(20), PEER_NGRAM: runs(1)}
    (found,) = comparisons(slow)
    assert found["best"] == OUR_HYBRID.name
    assert found["their_best"] == PEER.name
    assert found["best_ratio"] == pytest.approx(0.4)


def test_batch_sizes_are_never_compared_with_each_other() -> None:
    at_one = Cell("vllm", "plain", None, 0, 1)
    found = comparisons({**ALL, at_one: runs(500)})
    assert [(entry["batch_size"], entry["best_ratio"]) for entry in found] == [
        (8, pytest.approx(3.0)),
        (1, None),
    ]
    assert found[1]["plain_ratio"] is None


def test_a_record_tells_speed_gain_and_equal_answers() -> None:
    by_name = {record["name"]: record for record in records(ALL)}
    record = by_name[PEER_NGRAM.name]
    assert record["tokens_per_second"] == pytest.approx(50)
    assert record["over_own_plain"] == pytest.approx(50 / 45), "of 1.2, 1 and 1.11"
    assert record["equal_to_specdec_plain"] == 1
    assert record["figures"]["acceptance_length"] == pytest.approx(5.0)
    assert len(record["runs"]) == 3


def test_the_table_names_every_comparison() -> None:
    table = comparisons_table(comparisons(ALL))
    assert table.row_count == 1
    assert [next(iter(column.cells)) for column in table.columns] == [
        "8",
        "vllm",
        "2.00",
        "3.00",
        OUR_NGRAM.name,
        PEER_NGRAM.name,
    ]


def test_every_cell_has_a_row_and_what_is_not_known_is_a_dash() -> None:
    lonely = Cell("paper", "draft_model", "d", 4, 8)
    table = cells_table(records({**ALL, lonely: runs(5, 15, 10)}))
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert len(rows) == 6
    assert rows[-1] == (lonely.name, "10.0", "5.0-15.0", "-", "1.00", "2")


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(records({**ALL, Cell("vllm", "plain", None, 0, 1): runs(5)}), tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
