"""`make audit`: it goes on where it stopped, and only behind results of the same engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import audit, audit_log
from benchmarks.audit_log import EngineVersion, ReferenceStore, ResultLog
from deployments.cli.verify.audit import Audit
from deployments.cli.verify.compare import Answer
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason

Run = Callable[..., tuple[int, list[dict[str, Any]], str]]

VERSION = EngineVersion("abc", "engine", False)
FLAGS = ["--max-tokens", "8", "--algorithms", "exspec", "--spec-methods", "draft_model"]
SMALL = [*FLAGS, "--batch-sizes", "1,2", "--spec-tokens", "2", "--sample", "2"]


@pytest.fixture
def run(
    tiny_folder: Path,
    write_lines: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run the audit on the tiny model; returns the exit status, the file's lines, the output."""
    monkeypatch.setattr(audit_log, "REFERENCES", tmp_path / "references")
    lines = write_lines({"prompt": "abcabcabc"}, {"prompt": "xyxy"})
    output = tmp_path / "audit.jsonl"

    def call(*flags: str) -> tuple[int, list[dict[str, Any]], str]:
        words = [str(tiny_folder), "--input", str(lines), *SMALL, *flags]
        own = ["--output", str(output), "--dtypes", "float32"]
        result = CliRunner().invoke(audit.app, [*own, *words])
        assert isinstance(result.exception, SystemExit | None), result.exception
        text = output.read_text() if output.exists() else ""
        return result.exit_code, [json.loads(line) for line in text.splitlines()], result.output

    return call


def test_a_finished_cell_is_a_line_and_is_not_run_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, rows, _ = run("--temperatures", "0")
    assert status == 0
    assert rows[0]["cell"] == audit.GENERATE
    assert len(rows) == 1 + 2
    assert all(row["num_equal"] == row["num_requests"] == 2 for row in rows)
    assert all(row["commit"] and row["engine"] and row["fingerprint"] for row in rows)

    _, more, _ = run("--temperatures", "0,0.8")
    assert more[:3] == rows
    assert {row["temperature"] for row in more[3:]} == {0.8}
    assert len(more) == 5

    monkeypatch.setattr(Audit, "run", None)
    assert run("--temperatures", "0,0.8")[:2] == (0, more)


def test_a_cell_with_other_prompts_is_another_one(run: Run) -> None:
    few = ["--temperatures", "0", "--cells", "random", "--grid-sample", "0"]
    _, rows, _ = run(*few)
    assert run(*few)[1] == rows
    _, more, _ = run("--temperatures", "0")
    prompts = [(row["cell"], row["prompts"]) for row in more[1:]]
    assert len(prompts) == len({repr(item) for item in prompts}) > len(rows) - 1
    assert sum(prompts == [0, 1] for _, prompts in prompts) == 2


def test_a_passed_deadline_names_what_was_not_run(run: Run) -> None:
    status, rows, out = run("--minutes", "0")
    assert (status, rows) == (0, [])
    assert "not run: float32 exspec draft_model K=2 B=1 T=0.8" in out
    assert "0 of 5 cells done, 0 failed" in out


def test_a_line_counts_only_for_its_engine_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = ResultLog(path, VERSION)
    log.add("cell", {"seed": 1}, {"failures": []})
    assert log.find("cell", {"seed": 1}) is not None
    again = ResultLog(path, VERSION._replace(commit="other"))
    assert again.find("cell", {"seed": 1}) is not None
    assert again.find("cell", {"seed": 2}) is None
    assert again.find("another", {"seed": 1}) is None
    assert ResultLog(path, VERSION._replace(engine="new")).find("cell", {"seed": 1}) is None


def test_a_failed_cell_fails_the_audit_again_when_it_is_read_back(run: Run, tmp_path: Path) -> None:
    _, rows, _ = run("--temperatures", "0")
    path = tmp_path / "audit.jsonl"
    failed = {**rows[-1], "failures": ["1 of 2 answers differ"]}
    path.write_text("\n".join(map(json.dumps, [*rows[:-1], failed])) + "\n")
    assert run("--temperatures", "0")[0] == 1


def test_the_references_answers_come_back_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "REFERENCES", tmp_path)
    logprobs = [TokenLogprobs(-1 / 3, ((5, -1 / 3), (7, float("-inf"))))]
    answer = Answer([5], logprobs, FinishReason.STOP)
    ReferenceStore(VERSION, "cpu", {"seed": 1}).save({(0, 0.8): answer})
    loaded = ReferenceStore(VERSION, "cpu", {"seed": 1}).load()[(0, 0.8)]
    assert (loaded.token_ids, loaded.logprobs, loaded.finish_reason) == (
        [5],
        logprobs,
        FinishReason.STOP,
    )
    assert ReferenceStore(VERSION, "gpu", {"seed": 1}).load() == {}
