"""`specdec bench offline` on a tiny random model: every cell measured, the models loaded once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.bench.offline_report import CellRuns, cell_records
from deployments.cli.bench.offline_runs import run_cell
from deployments.cli.generate.output import STAGES
from deployments.cli.timed_run import TimedRun
from deployments.cli.verify.cells import Cell, Point
from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.config import (
    Numerics,
    SchedulerConfig,
    SpecMethod,
)
from specdec_core.loading import loader
from specdec_core.loading.loader import LoadConfig, load_pair
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from tests.cli.conftest import Outcome, Specdec
from tests.decoding import fixed_k

Write = Callable[..., Path]
Bench = Callable[..., tuple[Outcome, dict[str, Any]]]
PROMPTS = [{"prompt": "abcabcabcab"}, {"prompt": "what"}, {"turns": ["xyxyxyx"], "max_tokens": 9}]
PLAIN = Cell("autoregressive", Point(SpecMethod.NONE, 0, 2, 0.0))
DRAFTED = Cell("exspec", Point(SpecMethod.DRAFT_MODEL, 3, 2, 0.0))


FIXED = ["--spec-tokens", 3, "--spec-policy", "fixed"]
"""A draft that is its target again is given up where it may be."""


@pytest.fixture
def bench(specdec: Specdec, tiny_folder: Path, write_lines: Write, tmp_path: Path) -> Bench:
    """Run the command; its outcome and the file that it saved."""

    def run(*flags: object) -> tuple[Outcome, dict[str, Any]]:
        path = tmp_path / "found.json"
        base = ["bench", "offline", tiny_folder, "--input", write_lines(*PROMPTS)]
        limits = [
            "--max-tokens",
            16,
            "--kv-cache-tokens",
            2048,
            "--ignore-eos",
            "--numerics",
            "fast",
        ]
        outcome = specdec(*base, *limits, "--save-result", path, *flags)
        return outcome, json.loads(path.read_text()) if path.exists() else {}

    return run


def test_every_cell_is_measured_and_compared_with_plain_decoding(
    bench: Bench, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []

    def counted(*args: Any) -> Any:
        loads.append(args)
        return load_pair(*args)

    monkeypatch.setattr(loader, "load_pair", counted)
    flags = ["--spec-methods", "ngram,draft_model", "--spec-model", tiny_folder]
    outcome, found = bench(*flags, "--batch-sizes", "1,2", *FIXED, "--repeat", 2)
    assert outcome.status == 0, outcome.err
    assert len(loads) == 1
    cells = found["cells"]
    assert [(c["algorithm"], c["spec_method"], c["batch_size"]) for c in cells] == [
        (algorithm, method, size)
        for size in (1, 2)
        for algorithm, method in (
            ("autoregressive", "none"),
            ("exspec", "ngram"),
            ("exspec", "draft_model"),
        )
    ]
    for cell in cells:
        assert len(cell["runs"]) == 2
        assert {run["tokens"] for run in cell["runs"]} == {16 + 16 + 9}
        assert sum(cell["stage_shares"].values()) == pytest.approx(1.0, abs=1e-6)
        assert set(cell["stage_shares"]) == {*STAGES, "other"}
        assert 0 < cell["detokenise_share"] < 1
        assert cell["median_ttft_ms"] > 0
        assert cell["different_outputs"] == 0
        assert cell["name"] in outcome.out
        assert (cell["ratio"] == 1) == (cell["algorithm"] == "autoregressive")
    assert cells[2]["mean_acceptance_length"] > 3
    assert found["settings"]["repeat"] == 2
    assert found["fingerprint"]
    assert found["roofline"]["weight_bytes"] > 0
    assert "roofline: a pass reads" in outcome.out.replace("\n", " ")


def test_without_a_draft_prompt_lookup_is_measured(bench: Bench) -> None:
    _, found = bench("--algorithms", "exspec", "--batch-sizes", 2, "--repeat", 1)
    (cell,) = found["cells"]
    assert (cell["spec_method"], cell["ratio"]) == ("ngram", None)


def test_cells_have_the_k_of_generate_unless_it_is_named(bench: Bench) -> None:
    flags = ["--algorithms", "exspec,eqspec", "--batch-sizes", 2, "--repeat", 1]
    _, found = bench(*flags, "--device", "cpu")
    assert {c["algorithm"]: c["spec_tokens"] for c in found["cells"]} == {"exspec": 15, "eqspec": 4}
    _, found = bench(*flags, "--spec-tokens", 2)
    assert {c["spec_tokens"] for c in found["cells"]} == {2}


def test_the_plot_is_drawn(bench: Bench, tmp_path: Path) -> None:
    outcome, _ = bench("--repeat", 1, "--batch-sizes", 2, "--plot", tmp_path / "found.png")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--spec-methods", "draft_model"], "needs --spec-model"),
        (["--spec-methods", "ngram", "--spec-model", "x"], "uses no --spec-model"),
        (["--spec-methods", "eagle"], "is not one of draft_model"),
        (["--algorithms", "medusa"], "is not one of autoregressive"),
        (["--batch-sizes", "0"], "not a number of at least 1"),
        (["--spec-tokens", "64"], "num_draft_tokens must be"),
        (["--window", "1"], "window must be at least"),
        (["--repeat", "0"], "equal to 1"),
        (["--limit", "1", "--sample", "1"], "exclude each other"),
        (["--plot", "/no/such/folder/f.png"], "there is no folder"),
        (["--quantization=awq"], "not supported yet"),
    ],
)
def test_contradictions_are_refused(bench: Bench, flags: list[object], message: str) -> None:
    outcome, found = bench(*flags)
    assert outcome.status == 2
    assert message in outcome.err
    assert found == {}


def test_a_run_leaves_the_loaded_models_as_it_found_them(tiny_folder: Path) -> None:
    """So the same models serve every cell."""
    load = LoadConfig(kv_cache_tokens=1024, numerics=Numerics.FAST)
    models = load_pair(str(tiny_folder), str(tiny_folder), load)
    assert models.draft is not None
    speculation = fixed_k(SpecMethod.DRAFT_MODEL, 3)
    config = SchedulerConfig(max_group_size=2, window=4, speculation=speculation)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    requests = [
        Request(request_id=str(n), prompt_token_ids=tuple(range(5, 12 + n)), params=params)
        for n in range(5)
    ]
    found = []
    for cell in (DRAFTED, PLAIN, DRAFTED):
        run = run_cell(models, cell, config, requests, lambda num_finished: None)
        found.append(run.tokens)
        assert len(run.ttft_s) == 5
        assert all(0 < first_s <= run.seconds for first_s in run.ttft_s)
        for loaded in (models.target, models.draft):
            assert loaded.model.num_free_blocks == loaded.model.num_blocks
    assert found[0] == found[1] == found[2]


def run_at(tokens_per_second: float, ids: tuple[int, ...] = (1, 2)) -> TimedRun:
    stats = AlgorithmStats(num_committed=100, seconds={"verify": 25 / tokens_per_second})
    seconds = 100 / tokens_per_second
    return TimedRun(tokens={"1": ids}, ttft_s=(0.1, 0.3), stats=stats, seconds=seconds)


def test_the_ratio_is_taken_turn_by_turn() -> None:
    """In the second turn the machine was busy: 30 over 20 counts as 120 over 80 would."""
    plain = [run_at(100), run_at(20), run_at(100)]
    fast = [run_at(120, (1, 3)), run_at(30), run_at(180)]
    measured = [CellRuns(PLAIN, plain), CellRuns(DRAFTED, fast)]
    first, second = cell_records(measured, lambda ids: "x" * len(ids))
    assert first["ratio"] == 1
    assert second["ratio"] == pytest.approx(1.5)
    assert second["tokens_per_second"] == pytest.approx(120)
    assert second["median_ttft_ms"] == pytest.approx(200)
    assert second["stage_shares"]["verify"] == pytest.approx(0.25)
    assert second["stage_shares"]["other"] == pytest.approx(0.75)
    assert second["different_outputs"] == 1
