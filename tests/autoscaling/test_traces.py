"""Recorded signals, replayed: what the decision makes of them (traces/README.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deployments.autoscaling.decision import ApplicationState, Memory, decide
from deployments.autoscaling.signals import CellSignals
from deployments.config.scaling import Bounds, Thresholds

TRACES = Path(__file__).parent / "traces"
BOUNDS = {"target": Bounds(1, 3), "draft": Bounds(0, 2)}
SERVICE = Thresholds(
    window=4,
    max_group_size=4,
    draft_busy=0.3,
    up_delay_s=1.0,
    down_delay_s=2.0,
    zero_delay_s=5.0,
)
SIMULATED = Thresholds(
    window=16, max_group_size=8, up_delay_s=4.0, down_delay_s=25.0, zero_delay_s=30.0, retry_s=60.0
)

Line = dict[str, Any]


def lines(name: str) -> list[Line]:
    return [json.loads(line) for line in (TRACES / name).read_text().splitlines()]


def replayed(trace: Sequence[Line], aims: Thresholds) -> list[tuple[float, str, int]]:
    """When which deployment got which number; the numbers are those that were decided here."""
    memory, current = Memory(), dict(trace[0]["current"])
    found: list[tuple[float, str, int]] = []
    for line in trace:
        cells = {0: CellSignals(**line["signals"])}
        state = ApplicationState(current=current, bounds=BOUNDS, cells=cells, num_requests=0.0)
        decision = decide(state, aims, memory, line["now"])
        memory, current = decision.memory, {**current, **decision.numbers}
        found += [(line["now"], change.deployment, change.after) for change in decision.changes]
    return found


def recorded(trace: Sequence[Line]) -> list[tuple[float, str, int]]:
    """The same as it was then."""
    return [
        (line["now"], name, line["current"][name])
        for before, line in pairwise(trace)
        for name in BOUNDS
        if line["current"][name] != before["current"][name]
    ]


@pytest.mark.parametrize(
    ("name", "aims", "late_s"),
    [("service_load_step.jsonl", SERVICE, 6.0), ("simulated_drafts_to_zero.jsonl", SIMULATED, 4.0)],
)
def test_a_trace_leads_to_the_numbers_that_there_were(
    name: str, aims: Thresholds, late_s: float
) -> None:
    """Each within the time between looks and reports, which was long on a busy machine."""
    trace = lines(name)
    expected, found = sorted(recorded(trace), key=_of), sorted(replayed(trace, aims), key=_of)
    assert [(deployment, number) for _, deployment, number in found] == [
        (deployment, number) for _, deployment, number in expected
    ]
    assert all(abs(a[0] - b[0]) <= late_s for a, b in zip(found, expected, strict=True))


def _of(change: tuple[float, str, int]) -> tuple[str, float]:
    """By deployment, then by time."""
    return change[1], change[0]


def numbers(found: Sequence[tuple[float, str, int]], deployment: str) -> list[int]:
    return [number for _, name, number in found if name == deployment]


def test_by_default_a_service_grows_within_seconds_and_keeps_what_it_has_for_minutes() -> None:
    trace = lines("service_load_step.jsonl")
    found = replayed(trace, Thresholds(window=4, max_group_size=4))
    assert numbers(found, "target") == [3]
    assert found[0][0] - trace[0]["now"] < 10.0
    assert 0 not in numbers(found, "draft")


@pytest.mark.parametrize("lost", [2, 3, 5])
def test_reports_that_are_lost_delay_but_do_not_change_what_becomes_of_the_targets(
    lost: int,
) -> None:
    trace = lines("service_load_step.jsonl")
    thin = [line for place, line in enumerate(trace) if place % lost]
    assert numbers(replayed(thin, SERVICE), "target") == [3, 2, 1]


def test_load_that_comes_and_goes_faster_than_the_delays_changes_nothing() -> None:
    """The crowd of the trace for a second, nobody for the next."""
    trace = lines("service_load_step.jsonl")
    crowd = max(trace, key=lambda line: float(line["signals"]["num_waiting"]))
    nobody = trace[-1]
    swinging = [{**(crowd, nobody)[now % 2], "now": float(now)} for now in range(200)]
    swinging[0]["current"] = {"target": 1, "draft": 1}
    assert replayed(swinging, Thresholds(window=4, max_group_size=4)) == []
