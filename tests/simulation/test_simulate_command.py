"""`specdec simulate`: its report, and the exit status that CI goes by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.cli.main import app
from deployments.ingress.open_requests import OpenRequest, OpenRequests
from specdec_core.request import TokenEvent

runner = CliRunner()


def test_clean_seeds_are_reported_as_json(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    answer = runner.invoke(app, ["simulate", "--seeds", "3", "--output", str(output)])
    assert answer.exit_code == 0
    report = json.loads(output.read_text())
    assert report["num_seeds"] == 3
    assert report["num_requests"] >= 120
    assert report["violations"] == []
    assert report["least_faults_of_a_seed"] >= 8


def test_a_violation_is_shown_with_its_trace_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here news that leaves a gap is dropped rather than asked for again."""
    take = OpenRequests.take

    def forgetful(self: OpenRequests, entry: OpenRequest, event: TokenEvent) -> TokenEvent:
        num_emitted = len(entry.resumed().emitted_token_ids)
        nothing = TokenEvent(event.request_id, num_emitted, ())
        return take(self, entry, event) or nothing

    monkeypatch.setattr(OpenRequests, "take", forgetful)
    answer = runner.invoke(app, ["simulate", "--seeds", "60"])
    assert answer.exit_code == 1
    assert "requests wait" in answer.output
    assert "VIOLATION" in answer.output
    assert "does not replay" not in answer.output
    seed = answer.output.partition("specdec simulate --seed ")[2].split()[0]
    again = runner.invoke(app, ["simulate", "--seed", seed, "--trace"])
    assert again.exit_code == 1
    assert "FAULT" in again.output


def test_capacity_prints_its_figures_and_refuses_what_it_cannot_read() -> None:
    flags = ["--verify-ms", "20+0.1", "--draft-ms", "2+0.1", "--seconds", "1"]
    answer = runner.invoke(app, ["simulate", "capacity", *flags])
    assert answer.exit_code == 0
    assert "tokens_per_second" in answer.output
    wrong = runner.invoke(app, ["simulate", "capacity", *flags, "--cells", "2"])
    assert wrong.exit_code != 0
