"""What `make test-cluster` reports of steps that fail and of steps that do not run. No cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.cluster import __main__ as command
from tests.cluster.rehearsal import READY_S, RECOVERED_S, Rehearsal, StepError, wait_for
from tests.cluster.report import Result, page, write
from tests.cluster.steps import Step

ANSWERS = [[1, 2, 3], [4, 5]]


def outcome(question: int, token_ids: list[int], error: str | None = None) -> dict[str, Any]:
    """As tests/cluster/in_pod/load.py writes it."""
    ended = {"ended": 1.0, "num_resumes": 0, "gap_s": 0.5, "first_s": 0.25}
    return {"question": question, "token_ids": token_ids, "error": error, **ended}


def rehearsal(patience: float = 1.0) -> Rehearsal:
    return Rehearsal(Mock(key="key"), Mock(), [], patience, expected=ANSWERS)


def failing(*outcomes: list[dict[str, Any]]) -> Callable[[Rehearsal], dict[str, Any]]:
    """A step that starts a load for each list, and fails before it returns figures."""

    def run(shared: Rehearsal) -> dict[str, Any]:
        for seen in outcomes:
            shared.load(resume=bool(len(shared.loads))).outcomes.extend(seen)
        raise StepError("two entries ready: not within 90 s")

    return run


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_events", list)


def test_a_failed_step_keeps_what_its_load_saw() -> None:
    seen = [outcome(0, [1, 2, 3]), outcome(1, [4, 9]), outcome(1, [], "refused")]
    result = command.run_step(Step("entry evicted", failing(seen)), rehearsal())
    assert not result.passed
    assert result.figures["answers"] == 2
    assert result.figures["identical"] == 1
    assert result.figures["errors"] == {"refused": 1}
    assert "| entry evicted | **failed** | 0 | 1 of 2 | 1 | 0.5 |" in page([result], ["x"], {})


def test_of_several_loads_each_one_is_kept() -> None:
    run = failing([outcome(0, [1, 2, 3])], [outcome(1, [4, 5]), outcome(0, [1])])
    result = command.run_step(Step("entry ended", run), rehearsal())
    lines = page([result], ["entry ended"], {})
    assert "| entry ended (plain load 1) | **failed** | 0 | 1 of 1 | 0 |" in lines
    assert "| entry ended (resuming load 2) | **failed** | 0 | 1 of 2 | 0 |" in lines


def test_a_load_belongs_to_its_step() -> None:
    shared = rehearsal()
    command.run_step(Step("first", failing([outcome(0, [1, 2, 3])])), shared)
    result = command.run_step(Step("second", failing()), shared)
    assert result.figures == {}
    assert "| second | **failed** | 0 | - | - | - |" in page([result], ["second"], {})


def test_the_title_counts_the_planned_steps(tmp_path: Path) -> None:
    planned = [f"step {number}" for number in range(26)]
    results = [Result(name, True, 1.0, {}) for name in planned[:24]]
    write(results, planned, {}, tmp_path / "report.json")
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert lines[0] == "# make test-cluster: 24 of 26 steps passed, 2 not run"
    assert [line for line in lines if "| not run |" in line] == [
        f"| {name} | not run | - | - | - | - |  |" for name in planned[24:]
    ]
    assert json.loads((tmp_path / "report.json").read_text())["planned"] == planned
    assert page(results[:0], planned[:2], {}).startswith(
        "# make test-cluster: 0 of 2 steps passed,"
    )
    whole = page(results, planned[:24], {}).splitlines()[0]
    assert whole == "# make test-cluster: 24 of 24 steps passed"


def test_limits_follow_the_patience() -> None:
    assert (rehearsal().ready_s, rehearsal().recovered_s) == (READY_S, RECOVERED_S)
    assert (rehearsal(2.5).ready_s, rehearsal(2.5).recovered_s) == (
        2.5 * READY_S,
        2.5 * RECOVERED_S,
    )
    with pytest.raises(StepError, match="pods: not within 0 s; --patience sets the limits"):
        wait_for("pods", lambda: False, 0.0, 0.0)
