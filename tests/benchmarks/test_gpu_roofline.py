"""The command for a GPU runs on a CPU with tiny shapes, and imports nothing but torch's world."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from benchmarks import gpu_roofline, gpu_work
from benchmarks.paper.recorded_draft import RecordedDraft
from benchmarks.synthetic import record, synthetic_engine
from specdec_core import SamplingParams
from specdec_core.models.numerics import NotExactError
from tests.models.static_shapes.models import fixed, ragged

CPU = ["--device", "cpu", "--shape", "tiny", "--dtype", "float32", "--context", "40"]


def test_one_command_measures_passes_and_decoding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.json"
    sizes = ["--batches", "1,3", "--tokens", "12", "--repeats", "2"]
    gpu_roofline.main([*CPU, *sizes, "--output", str(output)])
    result = json.loads(output.read_text())
    passes = [(c["numerics"], c["batch"], c["mode"], c["work"]) for c in result["passes"]]
    works = ("decode", "verify", "draft")
    modes = ("recorded", "eager")
    expected = product(("fast", "exact"), (1, 3), modes, works)
    assert sorted(passes) == sorted(expected)
    decoded = [(c["numerics"], c["batch"], c["mode"]) for c in result["decoding"]]
    assert sorted(decoded) == sorted(product(("fast", "exact"), (1, 3), modes))
    assert "attention" in result["exact"], "the class table"
    assert all(cell["of_bound"] > 0 for cell in result["passes"])
    assert all(cell["same ids"] and cell["ratio"] > 0 for cell in result["decoding"])
    assert "of_bound" in capsys.readouterr().out


def test_a_target_that_cannot_be_exact_is_measured_fast_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object) -> None:
        raise NotExactError("linear 64x96 differs")

    monkeypatch.setattr(gpu_work, "make_exact", refuse)
    output = tmp_path / "out.json"
    sizes = ["--batches", "1", "--tokens", "8", "--repeats", "1", "--recorded-only"]
    gpu_roofline.main([*CPU, *sizes, "--output", str(output)])
    result = json.loads(output.read_text())
    assert result["exact"] == "refused: linear 64x96 differs"
    assert {cell["numerics"] for cell in result["passes"] + result["decoding"]} == {"fast"}


def test_it_needs_no_package_of_the_edge() -> None:
    """A GPU machine has torch and transformers."""
    edge = ("pydantic", "typer", "rich", "ray", "grpc", "fastapi", "httpx")
    code = f"import sys, benchmarks.gpu_roofline; print([m for m in {edge} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("k", [1, 4])
def test_a_recorded_draft_proposes_the_same_in_one_go(k: int) -> None:
    target = ragged("fused llama")
    prompts = [(number, 1, 2, 3) for number in range(5)]
    recording = record(target, prompts, SamplingParams(temperature=0.0, max_tokens=30))
    drafted = []
    for draft in (ragged("fused llama"), fixed("fused llama")):
        book = recording.book(target, 0.7)
        assert RecordedDraft(draft, book).drafts_in_one_go == draft.drafts_in_one_go
        engine = synthetic_engine(target, draft, book, batch=3, num_draft_tokens=k)
        events = list(engine.generate(recording.requests(5)))
        assert sum(len(event.token_ids) for event in events) == 150
        drafted.append((engine.stats.num_drafted, engine.stats.num_accepted))
    assert drafted[0] == drafted[1]
