"""`specdec verify` on a tiny random model: it proves equality, and it finds what is not equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.verify import audit as verify_audit
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.errors import NotExactError
from specdec_core.loading import loader as loading
from specdec_core.request import TokenEvent
from tests.cli.conftest import Outcome, Specdec
from tests.cli.tiny_folder import make_tiny_folder

Write = Callable[..., Path]
Verify = Callable[..., tuple[Outcome, dict[str, Any]]]

PROMPTS = [{"prompt": "abcab" * (index + 1) + str(index)} for index in range(6)]
FEW = ["--algorithms", "exspec", "--batch-sizes", 3, "--spec-tokens", 3, "--temperatures", 0]


@pytest.fixture
def verify(specdec: Specdec, tiny_folder: Path, write_lines: Write, tmp_path: Path) -> Verify:
    """Run the command on PROMPTS; returns the outcome and the JSON, {} where none was written."""

    def run(*flags: object) -> tuple[Outcome, dict[str, Any]]:
        path = tmp_path / "audit.json"
        base = ["verify", tiny_folder, "--input", write_lines(*PROMPTS), "--json", path]
        outcome = specdec(*base, "--max-tokens", 20, "--kv-cache-tokens", 4096, *flags)
        return outcome, json.loads(path.read_text()) if path.exists() else {}

    return run


class WrongEngine(Engine):
    """Speculation that changes the third token of request 1."""

    def generate(self, requests: Any) -> Iterator[TokenEvent]:
        for event in super().generate(requests):
            yield self._changed(event)

    def _changed(self, event: TokenEvent) -> TokenEvent:
        place = 2 - event.index
        if event.request_id != "1" or not 0 <= place < len(event.token_ids):
            return event
        ids = list(event.token_ids)
        ids[place] = (ids[place] + 1) % self.vocab_size
        return event._replace(token_ids=tuple(ids))


def wrong_unless_plain(*models: Any, algorithm: AlgorithmName, **settings: Any) -> Engine:
    kind = Engine if algorithm is AlgorithmName.AUTOREGRESSIVE else WrongEngine
    return kind(*models, algorithm=algorithm, **settings)


@pytest.mark.parametrize("numerics", ["exact", pytest.param("fast", marks=pytest.mark.nightly)])
def test_every_algorithm_is_compared_in_every_cell(verify: Verify, numerics: str) -> None:
    outcome, record = verify(
        "--batch-sizes", "1,4", "--spec-tokens", 3, "--numerics", numerics, "--spec-methods",
        "draft_model", "--max-tokens", 12,
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    (run,) = record["runs"]
    assert record["holds"] is True
    assert run["numerics"] == numerics
    cells = run["cells"]
    assert len(cells) == 2 + 3 * 2 * 2
    assert {cell["algorithm"] for cell in cells} == set(AlgorithmName)
    assert all(cell["num_equal"] == cell["num_requests"] >= 4 for cell in cells)
    assert all(cell["num_accepted"] > 0 for cell in cells if cell["method"] != "none")
    assert all(cell["num_accepted"] < cell["num_drafted"] for cell in cells if cell["num_drafted"])
    assert "cells passed" in outcome.out
    assert outcome.out.count("100.0") >= len(cells)


def test_a_wrong_token_is_found_and_named_in_exact_numerics(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_audit, "Engine", wrong_unless_plain)
    outcome, record = verify(*FEW, "--spec-methods", "ngram", "--numerics", "exact")
    assert outcome.status == 1
    assert record["holds"] is False
    (cell,) = record["runs"][0]["cells"]
    (difference,) = cell["differences"]
    assert (difference["prompt"], difference["position"]) == (1, 2)
    assert difference["expected"] != difference["got"]
    assert cell["num_equal"] == cell["num_requests"] - 1
    assert cell["logit_change"] == 0.0, "rows of exact numerics do not see their company"
    assert f"1 of {cell['num_requests']} answers differ" in outcome.out
    assert str(difference["got"]) in outcome.out


def test_fast_numerics_do_not_excuse_a_wrong_token(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_audit, "Engine", wrong_unless_plain)
    outcome, record = verify(*FEW, "--spec-methods", "ngram", "--numerics", "fast")
    assert outcome.status == 1
    (cell,) = record["runs"][0]["cells"]
    (difference,) = cell["differences"]
    assert difference["chosen_gap"] > 2 * cell["logit_change"]
    assert difference["top_two_gap"] <= difference["chosen_gap"]
    assert "by more than rounding explains" in outcome.out


def test_fast_numerics_may_swap_choices_that_nearly_tie(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, but the measured change of a logit is larger than the gap."""
    monkeypatch.setattr(verify_audit, "Engine", wrong_unless_plain)
    monkeypatch.setattr(verify_audit, "measure_logit_change", lambda *_: 1000.0)
    outcome, record = verify(*FEW, "--spec-methods", "ngram", "--numerics", "fast")
    assert outcome.status == 0, outcome.err
    (cell,) = record["runs"][0]["cells"]
    assert cell["num_equal"] == cell["num_requests"] - 1
    assert "so a gap up to 2e+03 is rounding" in outcome.out


def test_a_cell_without_accepted_drafts_shows_nothing(verify: Verify) -> None:
    outcome, record = verify(*FEW, "--spec-methods", "ngram", "--max-tokens", 1)
    assert outcome.status == 1
    (cell,) = record["runs"][0]["cells"]
    assert cell["num_equal"] == cell["num_requests"]
    assert cell["num_accepted"] == 0
    assert "no drafted token was accepted" in outcome.out


def test_exact_and_fast_figures_stand_side_by_side(verify: Verify) -> None:
    outcome, record = verify(*FEW, "--numerics", "exact", "--compare-fast")
    assert outcome.status == 0, outcome.err
    assert [run["numerics"] for run in record["runs"]] == ["exact", "fast"]
    exact, fast = (run["cells"] for run in record["runs"])
    assert [cell["name"] for cell in exact] == [cell["name"] for cell in fast]
    assert record["acceptance_ratio"] == pytest.approx(1.0, abs=0.02)
    assert "fast" in outcome.out
    assert "ratio" in outcome.out


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_logprobs_are_compared_when_asked_for(verify: Verify, numerics: str) -> None:
    outcome, record = verify(*FEW, "--numerics", numerics, "--logprobs", 3)
    assert outcome.status == 0, outcome.err
    cells = record["runs"][0]["cells"]
    changes = [cell["logprobs"] for cell in cells]
    assert [change["num_answers"] for change in changes] == [cell["num_equal"] for cell in cells]
    if numerics == "exact":
        assert all(change["num_different"] == 0 == change["largest"] for change in changes)
    else:
        assert all(change["largest"] < 1e-3 for change in changes)


def test_a_refusal_of_exact_numerics_ends_the_command(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object, check: object) -> None:
        raise NotExactError("linear 64x96 differs")

    monkeypatch.setattr(loading, "make_exact", refuse)
    outcome, record = verify(*FEW, "--numerics", "exact")
    assert outcome.status != 0
    assert "linear 64x96 differs" in outcome.err
    assert record == {}


def test_every_prompt_is_in_every_cell_when_all_are_asked_for(verify: Verify) -> None:
    flags = ["--batch-sizes", "1,2", "--spec-tokens", 1, "--temperatures", 0, "--numerics", "fast"]
    _, record = verify(*flags, "--cells", "all", "--algorithms", "exspec,autoregressive")
    cells = record["runs"][0]["cells"]
    assert len(cells) == 2 * 2 + 1
    assert all(cell["prompts"] == list(range(6)) for cell in cells)


def test_a_named_draft_model_is_used(verify: Verify, tmp_path: Path) -> None:
    draft = make_tiny_folder(tmp_path / "draft", seed=0)
    methods = ["--spec-methods", "draft_model", "--numerics", "fast"]
    _, same = verify(*FEW, *methods, "--spec-model", draft)
    _, itself = verify(*FEW, *methods, "--spec-model", "self")
    _, other = verify(*FEW, *methods, "--spec-model", "self:1")
    accepted = [record["runs"][0]["cells"][0]["num_accepted"] for record in (same, itself, other)]
    assert accepted[0] == accepted[1] > accepted[2] > 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--algorithms", "medusa"], "exspec-padded"),
        (["--batch-sizes", "0"], "at least 1"),
        (["--batch-sizes", "2,x"], "'x'"),
        (["--batch-sizes", ","], "at least one"),
        (["--spec-tokens", "0"], "at least 1"),
        (["--spec-tokens", "99"], "num_draft_tokens"),
        (["--spec-methods", "none"], "draft_model"),
        (["--temperatures", "warm"], "'warm'"),
        (["--temperatures", "-1"], "temperature"),
        (["--algorithms", "autoregressive", "--batch-sizes", "1"], "1 is the reference"),
        (["--cells", "some"], "random"),
        (["--numerics", "sloppy"], "exact"),
        (["--spec-model", "self:x"], "'x'"),
        (["--spec-model", "self:2"], "2 layers"),
        (["--spec-model", "/no/such/draft"], "/no/such/draft"),
        (["--window", "2", "--batch-sizes", "4"], "window"),
        (["--limit", "1", "--sample", "1"], "--limit and --sample"),
        (["--logprobs", "21"], "20"),
        (["--json", "/no/such/folder/a.json"], "/no/such/folder"),
        (["--max-tokens", "600"], "line 1: prompt and max_tokens need"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    verify: Verify, flags: list[object], complaint: str
) -> None:
    outcome, record = verify(*flags)
    assert outcome.status == 2
    assert complaint in outcome.err
    assert record == {}


def test_a_line_that_cannot_run_is_named(
    specdec: Specdec, tiny_folder: Path, write_lines: Write
) -> None:
    path = write_lines({"prompt": "fine"}, {"prompt": "x", "top_p": 0})
    outcome = specdec("verify", tiny_folder, "--input", path)
    assert outcome.status == 2
    assert "line 2: top_p" in outcome.err


def test_a_line_keeps_the_sampling_parameters_that_it_names(
    tiny_folder: Path, specdec: Specdec, write_lines: Write, tmp_path: Path
) -> None:
    path, audit = write_lines({"prompt": "abab", "max_tokens": 3}), tmp_path / "a.json"
    specdec("verify", tiny_folder, "--input", path, *FEW, "--json", audit)
    cells = json.loads(audit.read_text())["runs"][0]["cells"]
    assert [cell["num_tokens"] for cell in cells] == [3] * len(cells)
