"""Capacity: what the figures must be by arithmetic; many replicas give as many times one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.simulation.capacity import Job
from deployments.simulation.capacity_options import CapacityOptions
from deployments.simulation.capacity_runs import run
from deployments.simulation.load import deal, drawn, read_trace
from deployments.simulation.step_costs import parse_step_ms
from specdec_core.config import KPolicyName
from specdec_core.errors import InvalidRequestError

NETWORK_MS = (0.2, 0.7)
"""A message there and one back, and the coordinator's moment to decide."""


def options(**changed: Any) -> CapacityOptions:
    """One client of short requests, and a coordinator that takes no time."""
    values: dict[str, Any] = dict(
        verify_ms="20+0.1",
        draft_ms="2+0.01",
        concurrency=1,
        prompt_len=32,
        output_len=64,
        seconds=4.0,
        warm_up=1.0,
        row_us=0.0,
        message_us=0.0,
        event_us=0.0,
    )
    return CapacityOptions(**{**values, **changed})


def figures(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = run(options(**changed))["figures"]
    return found


def test_a_plain_token_takes_a_pass_and_a_message_each_way() -> None:
    found = figures(drafts=0)
    least, most = (20.1 + extra for extra in NETWORK_MS)
    assert least < found["tpot_ms"]["p50"] < most
    assert found["target_utilisation"] == pytest.approx(20.1 / 20.5, abs=0.02)
    assert found["draft_utilisation"] is None


def test_with_a_perfect_draft_a_round_gives_a_token_more_than_it_drafted() -> None:
    """K draft steps of one sequence, then a pass of K + 1 tokens."""
    found = figures(acceptance=1.0)
    round_ms = 4 * 2.01 + 20.5
    least, most = ((round_ms + 2 * extra) / 5 for extra in NETWORK_MS)
    assert least < found["tpot_ms"]["p50"] < most * 1.1  # an answer's last round may be shorter


def test_a_slow_coordinator_is_the_limit() -> None:
    """A plain round of a row costs it a message, a row and an event, and gives one token."""
    found = figures(drafts=0, targets=8, concurrency=64, row_us=1000.0, event_us=1000.0)
    assert found["coordinator_utilisation"] > 0.95
    assert found["tokens_per_second"] == pytest.approx(1 / 0.002, rel=0.1)


def test_costs_of_the_coordinator_are_charged_by_message() -> None:
    cheap, dear = (figures(message_us=cost, drafts=0) for cost in (0.0, 5000.0))
    assert dear["tpot_ms"]["p50"] == pytest.approx(cheap["tpot_ms"]["p50"] + 5.0, abs=0.3)


def test_an_open_load_below_the_capacity_is_served_as_it_comes() -> None:
    found = figures(request_rate=4.0, concurrency=None, seconds=30.0)
    assert found["num_refused"] == 0
    assert found["requests_per_second"] == pytest.approx(4.0, rel=0.15)
    assert found["ttft_ms"]["p50"] < found["ttft_ms"]["p99"]


@pytest.mark.nightly
def test_layouts_are_compared_at_their_price() -> None:
    report = run(options(targets=3, recommend=True, concurrency=32, target_price=4, draft_price=1))
    rows = {row["layout"]: row for row in report["layouts"]}
    assert set(rows) == {
        "4 plain targets",
        "4 colocated",
        "3 targets + 1 draft",
        "2 targets + 2 drafts",
        "3 targets + half a draft",
    }
    assert rows["3 targets + 1 draft"]["price_per_hour"] == 13
    assert rows["3 targets + half a draft"]["price_per_hour"] == 12.5
    costs = [row["cost_per_million_tokens"] for row in report["layouts"]]
    assert costs == sorted(costs)
    for row in rows.values():
        paid = row["tokens_per_second"] * 3600 / 1e6 * row["cost_per_million_tokens"]
        assert paid == pytest.approx(row["price_per_hour"])
    colocated = rows["4 colocated"]
    assert colocated["target_utilisation"] + colocated["draft_utilisation"] <= 1.05


@pytest.mark.nightly
def test_a_load_needs_as_many_cells_as_keep_coordinators_half_idle() -> None:
    """A plain token of a group of 8 costs its coordinator 6 ms / 8."""
    report = run(options(targets=3, recommend=True, concurrency=32, message_us=6000.0))
    plain = next(row for row in report["layouts"] if row["layout"] == "4 plain targets")
    busy = plain["tokens_per_second"] / 8 * 0.006
    assert plain["coordinator_utilisation"] == pytest.approx(busy, abs=0.1)
    assert plain["num_cells"] == 2
    assert {row["num_cells"] for row in run(options(recommend=True))["layouts"]} == {1}


def test_a_draft_that_is_never_right_does_not_pay() -> None:
    report = run(options(targets=3, recommend=True, concurrency=32, acceptance=0.0))
    assert report["layouts"][0]["layout"] == "4 plain targets"


@pytest.mark.parametrize(("draft_ms", "acceptance"), [("5+0", 0.7), ("10+0", 0.9)])
def test_a_slow_draft_under_load_never_makes_its_targets_slower(
    draft_ms: str, acceptance: float
) -> None:
    """Three targets share it, and with K = 4 it has no time for half of their rounds."""
    load = {"targets": 3, "concurrency": 64, "seconds": 1.5, "warm_up": 1.5, "verify_ms": "25+0.05"}
    plain = figures(drafts=0, **load)["tokens_per_second"]
    shared = {**load, "draft_ms": draft_ms, "acceptance": acceptance}
    chosen, fixed = (
        figures(spec_policy=policy, **shared)["tokens_per_second"]
        for policy in (KPolicyName.GOODPUT, KPolicyName.FIXED)
    )
    assert chosen >= 1.2 * plain
    assert chosen >= 1.05 * fixed


@pytest.mark.slow
@pytest.mark.nightly
def test_64_targets_and_32_drafts_in_4_cells_give_nine_tenths_of_64_times_one() -> None:
    """At the coordinator's measured costs; one target has a draft of its own to compare with."""
    costs = {"row_us": 15.0, "message_us": 130.0, "event_us": 14.0}
    shape = {"verify_ms": "25+0.05", "prompt_len": 128, "output_len": 128, "seconds": 2.5}
    one = figures(concurrency=16, **costs, **shape)
    many = figures(targets=64, drafts=32, cells=4, concurrency=64 * 16, **costs, **shape)
    assert many["tokens_per_second"] >= 0.9 * 64 * one["tokens_per_second"]


def test_step_times_are_read_between_and_beyond_their_points() -> None:
    table = parse_step_ms("8:27, 1:20, 32:51")
    assert [table.at(rows) for rows in (1, 8, 20, 32, 56)] == pytest.approx(
        [0.020, 0.027, 0.039, 0.051, 0.075]
    )
    assert parse_step_ms("20+0.5").at(10) == pytest.approx(0.025)


@pytest.mark.parametrize("text", ["", "fast", "1:2:3", "8:27,8:28", "1:0"])
def test_what_is_no_step_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_step_ms(text)


def test_traffic_comes_at_its_rate_and_is_dealt_to_all_cells() -> None:
    jobs = drawn(50.0, 1.0, 20.0, Job(100, 10), seed=1)
    assert len(jobs) == 1000
    assert [time for time, _ in jobs] == sorted(time for time, _ in jobs)
    assert {50 <= job.prompt_len <= 150 for _, job in jobs} == {True}
    hands = deal(jobs, 3)
    assert sorted(len(hand) for hand in hands) == [333, 333, 334]


def test_a_trace_file_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [{"time": t, "prompt_len": 8, "output_len": 4} for t in (0.5, 0.0, 1.0)]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    assert [time for time, _ in read_trace(path)] == [0.0, 0.5, 1.0]
    found = figures(trace_file=path, concurrency=None)
    assert found["num_answers"] == 3
    path.write_text('{"time": 1}')
    with pytest.raises(InvalidRequestError, match=r"trace\.jsonl:1"):
        read_trace(path)
