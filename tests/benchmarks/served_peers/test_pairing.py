"""Ratios of turns that belong together, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.served_peers.arms import arm_name, arms_of, goes
from benchmarks.served_peers.figures import (
    Cells,
    Pairing,
    busy_rate,
    decode_rate,
    first_ratios,
    paired,
    rate,
    speculation_ratios,
)
from benchmarks.served_peers.readings import OFF, OFF_AGAIN, ON, Part


def reading(engine: str, number: int, speed: float, **how: Any) -> dict[str, Any]:
    return {
        "engine": engine,
        "part": Part.CELLS,
        "round": number,
        "pair": None,
        "speculation": None,
        "prompts": "short",
        "streams": 8,
        "temperature": 0.0,
        "input_tokens": 40,
        "tokens": 100,
        "seconds": 100 / speed,
        "busy_tokens": 90,
        "busy_s": 45 / speed,
        "decode_tokens": 80,
        "decode_s": 640 / speed,
        "ttft_ms": {"p50": 1000 / speed, "p90": 2000 / speed},
        "gap_ms": {"p50": 5.0, "p99": 9.0},
        "cpu_s": {"target": 0.9, "proxy": 0.1},
        "client_cpu_s": 0.05,
        "resident_mib": 1000.0,
        "stolen": 0.0,
        **how,
    }


def test_the_middle_is_the_median_of_the_ratios_and_not_a_ratio_of_medians() -> None:
    found = paired([100, 50, 90], [50, 20, 45])
    assert found is not None
    assert found.middle == pytest.approx(2.0), "of 2, 2.5 and 2"


def test_the_interval_is_students_on_logarithms() -> None:
    """Logarithms 0.1 and 0.3: mean 0.2, deviation 0.1414, half width 12.706 x 0.1."""
    found = paired([1.1051709, 1.3498588], [1.0, 1.0])
    assert found is not None
    assert found.low == pytest.approx(2.718281828 ** (0.2 - 1.2706), rel=1e-4)
    assert found.high == pytest.approx(2.718281828 ** (0.2 + 1.2706), rel=1e-4)


def test_ten_equal_pairs_have_no_width_and_one_pair_has_no_interval() -> None:
    found = paired([3.0] * 10, [2.0] * 10)
    assert found is not None
    assert found.low is not None
    assert found.low == pytest.approx(found.high) == pytest.approx(1.5)
    alone = paired([3.0], [2.0])
    assert alone is not None
    assert (alone.low, alone.num_pairs) == (None, 1)
    assert paired([], []) is None


def test_a_round_in_which_one_side_failed_is_in_no_ratio() -> None:
    cells = Cells(
        [
            reading("specdec", 0, 100),
            reading("specdec", 1, 300),
            reading("vllm", 1, 100),
            reading("specdec", 1, 1, streams=1),
        ]
    )
    found = cells.ratio("specdec", "vllm", "short", 8, rate)
    assert found is not None
    assert found.middle == pytest.approx(3.0)
    assert cells.ratio("specdec", "vllm", "short", 1, rate) is None


def on_over_off(temperature: float) -> Pairing:
    return Pairing("short", 8, temperature, ON, OFF)


def test_speculation_is_compared_pair_by_pair_at_each_temperature() -> None:
    readings = [
        reading("specdec", 0, speed, part=Part.PAIRS, pair=pair, speculation=side, temperature=t)
        for t, pair, side, speed in [
            (0.0, 0, ON, 100),
            (0.0, 0, OFF, 100),
            (0.0, 1, OFF, 50),
            (0.0, 1, ON, 60),
            (0.8, 0, ON, 90),
            (0.8, 0, OFF, 100),
        ]
    ]
    found = speculation_ratios(readings)
    assert found[on_over_off(0.0)].middle == pytest.approx(1.1), "of 1.0 and 1.2"
    assert found[on_over_off(0.8)].middle == pytest.approx(0.9)
    assert first_ratios(readings) == {}
    readings[0] |= {"busy_tokens": 90, "busy_s": 0.6}
    assert speculation_ratios(readings, busy_rate)[on_over_off(0.0)].middle == pytest.approx(
        0.975
    ), "of 150 / 200 and 1.2"


def test_the_goes_of_a_turn_count_as_one() -> None:
    """As many tokens each: 2 / (1/50 + 1/100) over 2 / (1/100 + 1/100)."""
    readings = [
        reading("specdec", 0, speed, part=Part.PAIRS, pair=0, speculation=side)
        for side, speed in [(ON, 50), (OFF, 100), (OFF, 100), (ON, 100)]
    ]
    found = speculation_ratios(readings)[on_over_off(0.0)]
    assert (found.middle, found.num_pairs) == (pytest.approx(2 / 3), 1)


def test_first_requests_are_compared_round_by_round() -> None:
    readings = [
        reading("specdec", number, speed, part=Part.FIRST, speculation=side)
        for number, side, speed in [(0, OFF, 100), (0, ON, 97), (1, OFF, 50), (1, ON, 60)]
    ]
    assert first_ratios(readings)[on_over_off(0.0)].num_pairs == 2


def test_each_arm_is_compared_with_off_and_the_shipped_one_with_every_other_k() -> None:
    """Kinds of prompts stay apart."""
    speeds = {ON: 150.0, arm_name(4): 120.0, OFF: 100.0, OFF_AGAIN: 101.0}
    readings = [
        reading(
            "specdec", 0, factor * speed, part=Part.PAIRS, pair=0, speculation=arm, prompts=kind
        )
        for kind, factor in (("edit", 1), ("short", 2))
        for arm, speed in speeds.items()
    ]
    readings += [reading("specdec", 0, 1.0, part=Part.PAIRS, pair=1, speculation=ON)]
    found = speculation_ratios(readings, decode_rate)
    edits = {each[3:]: ratio.middle for each, ratio in found.items() if each.prompts == "edit"}
    assert edits == {
        (ON, OFF): pytest.approx(1.5),
        (arm_name(4), OFF): pytest.approx(1.2),
        (OFF_AGAIN, OFF): pytest.approx(1.01),
        (ON, arm_name(4)): pytest.approx(1.25),
    }
    assert found[on_over_off(0.0)].num_pairs == 1, "a turn without the other arm is in no ratio"


def test_a_turn_mirrors_itself_and_begins_with_another_arm_each_time() -> None:
    arms = arms_of((4,), has_noise=True)
    assert [arm.name for arm in arms] == [ON, "on, K = 4", OFF, OFF_AGAIN]
    turns = [goes(arms, number) for number in range(4)]
    assert all(turn == turn[::-1] and sorted(turn[:4]) == sorted(arms) for turn in turns)
    assert {turn[0] for turn in turns} == set(arms)
    assert [arm.is_speculating for arm in arms] == [True, True, False, False]
