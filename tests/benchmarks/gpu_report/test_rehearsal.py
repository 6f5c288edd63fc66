"""All of the report on a CPU, as `make gpu-report ARGS=--rehearse` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_report.environment import ROOT, environment
from benchmarks.gpu_report.results import Result, Status, load, path_of
from benchmarks.gpu_report.steps import STEPS

MAX_CPU_S = 45.0
"""Of all steps: importing torch and transformers once takes 7 s more, and 60 are what it may
take."""


def rehearse(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_report", "--rehearse", "--output", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.nightly
def test_every_step_runs_and_a_second_start_runs_none(tmp_path: Path) -> None:
    done = rehearse(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, Result] = {}
    for step in STEPS:
        found = load(path_of(tmp_path, step.name))
        assert found is not None
        results[step.name] = found
    assert {result.status for result in results.values()} == {Status.DONE}
    assert all(result.environment == environment() for result in results.values())
    assert sum(result.cpu_s for result in results.values()) < MAX_CPU_S
    check_figures(results)
    assert "Its speeds mean nothing" in (tmp_path / "report.md").read_text()

    again = rehearse(tmp_path)
    assert again.returncode == 0
    assert again.stdout.count("done before, kept") == len(STEPS)


def check_figures(results: dict[str, Result]) -> None:
    works = {row["work"] for row in results["roofline"].rows("passes", mode="recorded")}
    assert works == {"decode", "verify", "draft"}
    assert all(row["holds"] for row in results["checks"].rows("checks"))
    speeds = results["speed"].rows("decoding")
    assert {row["numerics"] for row in speeds} == {"fast", "exact"}
    assert all(row["as_arranged"] and row["tokens_per_s"] > 0 for row in speeds)
    ways = {row["way"] for row in results["exactness"].rows("token IDs", what="recorded passes")}
    assert ways == {
        "plain",
        "exspec, draft_model",
        "exspec, ngram",
        "exspec, hybrid",
        "eqspec, draft_model",
        "exspec-padded, draft_model",
    }
    compared = results["exactness"].rows("token IDs") + results["real_model"].rows("token IDs")
    assert all(row["equal"] == row["prompts"] for row in compared)
    drafted = [row for row in results["exactness"].rows("token IDs") if row["way"] != "plain"]
    assert all(row["accepted"] > 0 for row in drafted), "nothing accepted shows nothing"
    assert results["kernels"].rows("gaps")
    assert results["peer"].rows("decoding")
