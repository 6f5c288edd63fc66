"""Every goal is read from its step, and one that is missed is said to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_report.goals import GOALS, Goal, Verdict, judge
from benchmarks.gpu_report.results import Result, Status
from benchmarks.gpu_report.steps import STEPS
from tests.benchmarks.gpu_report.made import (
    SPEEDS,
    decoding,
    good_results,
    passes,
    result,
    served,
    token_ids,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "gpu.md"


def failed(results: dict[str, Result]) -> list[str]:
    return [
        item.goal.what
        for item in judge(results, is_rehearsal=False)
        if item.verdict is Verdict.FAIL
    ]


def test_goals_that_are_met_pass() -> None:
    verdicts = [item.verdict for item in judge(good_results(), is_rehearsal=False)]
    assert verdicts == [Verdict.PASS] * len(GOALS)


@pytest.mark.parametrize(
    ("worse", "missed"),
    [
        (result("roofline", tables={"passes": passes(0.69)}), ["Plain decod", "Verification"]),
        (result("speed", tables={"decoding": decoding({**SPEEDS, 64: 1.14})}), ["exspec over"]),
        (result("speed", tables={"decoding": decoding(SPEEDS, 0.89)}), ["Exact over fast"]),
        (
            result(
                "speed",
                facts={"exact numerics refused": "linear 64x96 differs"},
                tables={"decoding": [r for r in decoding(SPEEDS) if r["numerics"] == "fast"]},
            ),
            ["Exact over fast"],
        ),
        (
            result(
                "exactness",
                tables={
                    "token IDs": token_ids("recorded passes", 63) + token_ids("eager passes", 64)
                },
            ),
            ["Token IDs equal to plain decoding, random weights, recorded"],
        ),
        (
            result("checks", tables={"checks": [{"holds": True}, {"holds": False}]}),
            ["Self-checks"],
        ),
        (result("gpu_tests", facts={"passed": 19, "failed": 1}), ["Tests for a GPU"]),
        (result("memory", facts={"taken over planned": 1.01}), ["Memory taken"]),
        (served(equal=63), ["Token IDs equal to plain decoding, the service"]),
        (served(over_without=0.96), ["The service with speculation"]),
    ],
)
def test_a_goal_that_is_missed_fails_and_no_other(worse: Result, missed: list[str]) -> None:
    found = failed({**good_results(), worse.step: worse})
    assert len(found) == len(missed)
    assert all(what.startswith(begin) for what, begin in zip(found, missed, strict=True))


def test_a_step_that_did_not_run_measures_nothing() -> None:
    results = good_results()
    del results["speed"]
    by_step = {item.goal.step: item for item in judge(results, is_rehearsal=False)}
    assert by_step["speed"].verdict is Verdict.NOT_MEASURED
    assert by_step["speed"].note == "the step speed has not run"
    assert by_step["roofline"].verdict is Verdict.PASS


def test_partial_results_of_a_stopped_step_are_judged_and_say_so() -> None:
    cut = result("roofline", tables={"passes": passes(0.8)}, status=Status.OUT_OF_TIME)
    judged = judge({"roofline": cut}, is_rehearsal=False)
    decode = next(item for item in judged if item.goal.what.startswith("Plain"))
    assert (decode.verdict, decode.note) == (Verdict.PASS, "roofline: out of time")


def test_a_rehearsal_judges_ids_and_no_speed() -> None:
    slow = {**good_results(), "roofline": result("roofline", tables={"passes": passes(0.01)})}
    by_step = {item.goal.step: item for item in judge(slow, is_rehearsal=True)}
    assert by_step["roofline"].verdict is Verdict.NOT_MEASURED
    assert by_step["exactness"].verdict is Verdict.PASS


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.what)
def test_the_document_has_every_goal_with_its_bound(goal: Goal) -> None:
    assert f"| {goal.what} | {goal.bound} | `{goal.step}` |" in DOCUMENT.read_text()


def test_the_document_has_every_step_with_its_limit() -> None:
    text = DOCUMENT.read_text()
    assert all(f"| `{s.name}` | {s.what} | {s.limit_s:.0f} |" in text for s in STEPS)
