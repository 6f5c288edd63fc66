"""What passes cost, learnt from few of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from specdec_core.speculation import step_costs
from specdec_core.speculation.step_costs import CostLine, CostModel, Point, fit_line


def test_costs_are_learnt_from_few_passes_and_never_fall_with_the_rows() -> None:
    cost = CostModel()
    for rows in (8, 40, 8, 24, 16, 40):
        cost.observe(8, rows, 0.010 + 0.0005 * rows)
    assert cost.at(8, 32) == pytest.approx(0.026, rel=0.05)
    assert cost.line.row_s == pytest.approx(0.0005, rel=0.1)
    falling = CostModel()
    for rows, seconds in ((8, 0.03), (40, 0.02), (8, 0.03), (40, 0.02)):
        falling.observe(8, rows, seconds)
    assert falling.line.row_s == 0.0


def test_a_line_is_told_apart_by_rows_sequences_and_tiles() -> None:
    places = [
        (8, 8, 1),
        (40, 8, 2),
        (16, 16, 1),
        (48, 16, 2),
        (32, 32, 1),
        (128, 32, 4),
        (33, 4, 2),
    ]
    points = [
        Point(tuple(map(float, at)), 5.0 + 0.25 * at[0] + 0.5 * at[1] + 3.0 * at[2], 1.0)
        for at in places
    ]
    base, slopes = fit_line(points, first_share=0.5)
    for rows, sequences, tiles in ((24, 8, 1), (64, 16, 2), (96, 32, 3), (20, 20, 1)):
        expected = 5.0 + 0.25 * rows + 0.5 * sequences + 3.0 * tiles
        found = base + slopes[0] * rows + slopes[1] * sequences + slopes[2] * tiles
        assert found == pytest.approx(expected, rel=0.08)


def test_a_line_through_the_origin_does_not_say_that_rows_cost_everything() -> None:
    """One pass met other work, and the slope is so steep that no base is left."""
    seen = (
        (3, 3, 1, 10.16, 2.0),
        (7, 7, 1, 14.49, 4.0),
        (8, 8, 1, 14.92, 50.0),
        (10, 8, 1, 15.7, 3.0),
        (12, 8, 1, 14.84, 1.0),
        (16, 8, 1, 15.55, 2.0),
        (24, 8, 2, 53.57, 1.0),
    )
    points = [
        Point((float(rows), float(sequences), float(tiles)), ms, weight / ms**2)
        for rows, sequences, tiles, ms, weight in seen
    ]
    base, slopes = fit_line(points, first_share=0.5)
    assert base == 0.0
    assert 16 * slopes[0] + 8 * slopes[1] + slopes[2] == pytest.approx(15.55, rel=0.2)


def test_of_one_size_alone_half_the_pass_is_taken_to_grow_with_the_rows() -> None:
    cost = CostModel()
    cost.observe(8, 8, 0.04)
    assert cost.line.row_s == pytest.approx(0.5 * 0.04 / 8)
    assert cost.line.base_s == pytest.approx(0.02)


def test_a_step_that_no_line_shows_is_learnt_where_it_was_seen() -> None:
    cost = CostModel()
    for _ in range(40):
        for rows in (8, 16, 24, 32, 48, 64):
            cost.observe(8, rows, 0.030 if rows <= 32 else 0.080)
    assert cost.at(8, 32) == pytest.approx(0.030, rel=0.1)
    assert cost.at(8, 48) == pytest.approx(0.080, rel=0.1)


@pytest.mark.parametrize("when", [0, 1, 9])
def test_a_pass_that_met_other_work_is_soon_forgotten(when: int) -> None:
    cost = CostModel()
    for number in range(16):
        cost.observe(8, 8, 0.4 if number == when else 0.04)
    assert cost.at(8, 8) < 0.044


def known_sizes() -> CostModel:
    """20 ms for 8 rows, 30 for 16."""
    cost = CostModel()
    for _ in range(30):
        cost.observe(8, 8, 0.020)
        cost.observe(8, 16, 0.030)
    return cost


@pytest.mark.parametrize("pace", [5.0, 1.3, 0.8, 0.2])
def test_a_machine_that_changes_its_pace_changes_it_for_all_sizes(pace: float) -> None:
    """Though only one of them is run, what they cost beside each other stays."""
    cost = known_sizes()
    for _ in range(40):
        cost.observe(8, 8, 0.020 * pace)
    assert cost.at(8, 8) == pytest.approx(0.020 * pace, rel=0.05)
    assert cost.at(8, 16) == pytest.approx(1.5 * cost.at(8, 8), rel=0.1)


@pytest.mark.parametrize("seconds", [0.040, 0.080])
def test_one_size_that_became_dearer_is_told_from_a_slow_machine(seconds: float) -> None:
    cost = known_sizes()
    for _ in range(60):
        cost.observe(8, 8, 0.020)
        cost.observe(8, 16, seconds)
    assert cost.at(8, 8) == pytest.approx(0.020, rel=0.05)
    assert cost.at(8, 16) == pytest.approx(seconds, rel=0.1)


def test_passes_of_one_size_alone_do_not_move_the_others() -> None:
    """However long, and however noisy they are."""
    cost, noise = known_sizes(), random.Random(1)
    for _ in range(3000):
        cost.observe(8, 8, 0.020 * (1.0 + noise.expovariate(10.0)))
    assert cost.at(8, 16) == pytest.approx(1.5 * cost.at(8, 8), rel=0.1)


def test_slow_passes_and_fast_ones_are_no_new_pace() -> None:
    cost = known_sizes()
    for rows, seconds in ((8, 0.2), (16, 0.3), (8, 0.002)):
        cost.observe(8, rows, seconds)
    assert cost.at(8, 8) == pytest.approx(0.020, rel=0.05)
    assert cost.at(8, 16) == pytest.approx(0.030, rel=0.05)


def test_the_first_pass_of_a_size_is_believed_within_bounds() -> None:
    """It may have met other work: at most half more than the line says."""
    cost = known_sizes()
    expected = cost.at(8, 24)
    cost.observe(8, 24, 0.4)
    assert expected < cost.at(8, 24) < 1.5 * expected


def test_the_line_is_drawn_seldom_once_a_size_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target waits for every decision, and to draw it takes longer than the rest of one."""
    drawn: list[int] = []

    def counted(points: Sequence[Point], first_share: float) -> tuple[float, list[float]]:
        drawn.append(len(points))
        return fit_line(points, first_share)

    monkeypatch.setattr(step_costs, "fit_line", counted)
    cost = known_sizes()
    drawn.clear()
    for _ in range(80):
        cost.observe(8, 8, 0.012)
        cost.at(8, 40)
    assert 80 // 8 <= len(drawn) <= 80 // 4


def test_what_was_timed_before_counts_until_a_pass_was_run() -> None:
    cost = CostModel()
    cost.expect(8, 8, 0.01)
    assert not cost.was_timed, "one size says nothing of what a row costs"
    cost.expect(8, 40, 0.03)
    assert cost.was_timed
    before = cost.at(8, 40)
    cost.expect(8, 40, 9.0)
    assert cost.at(8, 40) == before, "of a size the first time counts"


def test_what_was_run_counts_more_than_what_would_be_expected() -> None:
    cost = CostModel()
    cost.observe(8, 8, 0.01)
    cost.expect(8, 40, 9.0)
    assert not cost.was_timed
    assert cost.at(8, 40) < 0.1


def test_a_line_at_another_pace_is_slower_in_all_its_parts() -> None:
    line = CostLine(base_s=1.0, row_s=2.0, sequence_s=3.0)
    assert line.times(2.0) == CostLine(base_s=2.0, row_s=4.0, sequence_s=6.0)


def test_a_machine_that_becomes_slower_again_is_believed_again() -> None:
    cost = CostModel()
    for seconds in (0.01, 0.02, 0.04):
        for _ in range(8):
            cost.observe(8, 8, seconds)
    assert cost.at(8, 8) == pytest.approx(0.04, rel=0.1)
