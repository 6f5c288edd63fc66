"""`specdec eval-draft`: its figures follow from what was decoded, and it says what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deployments.cli.eval_draft.report import PassCosts, Point, best_point, pass_costs, verdict
from deployments.cli.timed_run import TimedRun
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.errors import InvalidRequestError
from specdec_core.request import RequestStats
from tests.cli.conftest import Outcome, Specdec
from tests.cli.tiny_folder import make_tiny_folder
from tests.tiny_models import packed_model

Write = Callable[..., Path]
Evaluate = Callable[..., tuple[Outcome, dict[str, Any]]]
PROMPTS = [
    {"prompt": "abcabcabcab", "category": "copy"},
    {"prompt": "what", "category": "chat"},
    {"turns": ["xyxyxyx"], "category": "copy"},
]


@pytest.fixture
def evaluate(specdec: Specdec, tiny_folder: Path, write_lines: Write, tmp_path: Path) -> Evaluate:
    def run(*flags: object) -> tuple[Outcome, dict[str, Any]]:
        path = tmp_path / "found.json"
        base = ["eval-draft", "--target", tiny_folder, "--input", write_lines(*PROMPTS)]
        limits = ["--max-tokens", 16, "--kv-cache-tokens", 2048, "--spec-tokens", "1-3"]
        outcome = specdec(*base, *limits, "--json", path, *flags)
        return outcome, json.loads(path.read_text()) if path.exists() else {}

    return run


def test_the_target_as_its_own_draft_is_always_right(evaluate: Evaluate, tiny_folder: Path) -> None:
    outcome, found = evaluate("--draft", tiny_folder)
    assert outcome.status == 0, outcome.err
    for k, point in enumerate(found["points"], start=1):
        assert point["num_draft_tokens"] == k
        assert point["acceptance_rate"] > 0.9
        assert 1.0 + 0.8 * k < point["mean_acceptance_length"] <= 1 + k
        assert len(point["acceptance_per_position"]) == k
        assert point["different_outputs"] == 0
        assert point["cost_ratio"] > 0.1
        assert set(point["acceptance_length_by_category"]) == {"copy", "chat"}
    assert found["verdict"] in " ".join(outcome.out.split())


def test_another_model_is_mostly_wrong(evaluate: Evaluate, tmp_path: Path) -> None:
    draft = make_tiny_folder(tmp_path / "other", seed=1)
    _, found = evaluate("--draft", draft, "--temperature", 1)
    assert all(point["acceptance_rate"] < 0.3 for point in found["points"])
    assert all(point["different_outputs"] == 0 for point in found["points"])


@pytest.mark.parametrize("method", ["ngram", "hybrid"])
def test_prompt_lookup_and_hybrid_are_evaluated_too(
    evaluate: Evaluate, tiny_folder: Path, method: str
) -> None:
    draft = ["--draft", tiny_folder] if method == "hybrid" else []
    outcome, found = evaluate(
        "--spec-method", method, "--batch-size", 2, "--max-tokens", 96, *draft
    )
    assert outcome.status == 0, outcome.err
    assert (found["draft_step_seconds"] == 0) == (method == "ngram")
    assert all(point["drafted"] > 0 for point in found["points"])


def test_the_plot_is_drawn(evaluate: Evaluate, tmp_path: Path) -> None:
    outcome, _ = evaluate("--plot", tmp_path / "found.png")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_library_the_plot_is_refused_at_once(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("deployments.cli.plotting.find_spec", lambda name: None)
    outcome, found = evaluate("--plot", tmp_path / "found.png")
    assert outcome.status == 2
    assert "pip install '.[bench]'" in outcome.err
    assert found == {}


def test_another_tokenizer_is_refused_with_both_sizes(evaluate: Evaluate, tmp_path: Path) -> None:
    other = make_tiny_folder(tmp_path / "other", specials=("<|more|>",))
    outcome, _ = evaluate("--draft", other)
    assert outcome.status == 2
    assert "258 ids" in outcome.err
    assert "259" in outcome.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--spec-method", "draft_model"], "needs --draft"),
        (["--spec-method", "ngram", "--draft", "x"], "uses no --draft"),
        (["--spec-tokens", "0-3"], "not a list of numbers"),
        (["--spec-tokens", "64"], "num_draft_tokens must be"),
    ],
)
def test_contradictions_are_refused(evaluate: Evaluate, flags: list[object], message: str) -> None:
    outcome, _ = evaluate(*flags)
    assert outcome.status == 2
    assert message in outcome.err


def _run(tokens_per_second: float, accepted: int, k: int) -> TimedRun:
    stats = AlgorithmStats(
        num_rounds=10,
        num_committed=10 + accepted,
        num_sequence_rounds=10,
        num_proposed_rounds=10 if k else 0,
        num_drafted=10 * k,
        num_accepted=accepted,
    )
    request_stats = {"1": RequestStats(num_accepted=accepted, steps=((1, 1),) * 10)}
    return TimedRun(
        tokens={"1": (1, 2)},
        request_stats=request_stats,
        stats=stats,
        seconds=(10 + accepted) / tokens_per_second,
    )


def _point(k: int, tokens_per_second: float, accepted: int, draft_step_s: float) -> Point:
    return Point(
        num_draft_tokens=k,
        run=_run(tokens_per_second, accepted, k),
        plain=_run(100.0, 0, 0),
        costs=PassCosts(draft_step_s, {0: 0.010, 2: 0.012, 4: 0.016}),
        categories={"1": "a"},
    )


def test_speed_ups_by_hand() -> None:
    """2.5 tokens a round at K = 2, each round 12 ms and two steps of 2 ms, against 10 ms plain."""
    point = _point(2, 150.0, 15, 0.002)
    assert point.measured_speedup == pytest.approx(1.5)
    assert point.predicted_speedup == pytest.approx(2.5 * 10 / 16)
    assert point.costs.ratio(2) == pytest.approx(2 / 12)
    assert point.by_category == {"a": 2.5}


def test_the_best_point_is_the_fastest_that_was_measured() -> None:
    points = [_point(2, 150.0, 10, 0.001), _point(4, 120.0, 30, 0.001)]
    assert best_point(points).num_draft_tokens == 2
    assert verdict(points) == "useful: 1.50 times as fast as plain decoding at K = 2"


def test_a_slow_draft_is_told_how_fast_it_would_have_to_be() -> None:
    """2.5 tokens a round pay for 25 ms; checking takes 12, so two steps may take 13."""
    words = verdict([_point(2, 90.0, 15, 0.009)])
    assert words.startswith("not useful: at best 0.90 times")
    assert "takes 0.900 of a plain pass" in words
    assert "a step may take at most 0.650" in words


def test_a_draft_that_is_never_right_is_told_that_no_speed_would_help() -> None:
    assert "even if drafting were free" in verdict([_point(4, 50.0, 2, 0.001)])


def test_a_model_of_which_no_pass_was_timed_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no pass was timed"):
        pass_costs(packed_model("llama", torch.float32), None, 1, [4])
