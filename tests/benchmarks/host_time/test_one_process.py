"""Cells run as on a GPU, their parts add up, and nothing but torch and transformers is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.host_time.cells import Cell, DeviceKind, Method, times_of
from benchmarks.host_time.clocks import CpuClock, WallClock
from benchmarks.host_time.command import main
from benchmarks.host_time.one_process import Bench, Lengths, Measured
from benchmarks.host_time.report import as_json, figures_of, plot, table
from specdec_core.sampling.cpu import load_choice_kernels

ROOT = Path(__file__).parents[3]
SHORT = Lengths(prompt=40, answer=24)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(times_of(DeviceKind.H100), SHORT, CpuClock())


@pytest.fixture(scope="module")
def measured(bench: Bench) -> list[Measured]:
    """Cells of a process that has loaded a model for a CPU before: its choice must wait as well."""
    load_choice_kernels()
    return [bench.measure(Cell(DeviceKind.H100, 4, method)) for method in Method]


def test_the_parts_of_a_run_are_all_of_its_time(measured: list[Measured]) -> None:
    """The clocks themselves are the difference: microseconds of milliseconds."""
    for cell in measured:
        for run in cell.runs:
            parts = run.split.device + sum(run.split.critical.values())
            assert parts == pytest.approx(run.clocked.seconds, rel=0.02)
            assert sum(run.split.busy.values()) == pytest.approx(parts)


def test_each_method_does_what_its_name_says(measured: list[Measured]) -> None:
    plain, ngram_0, ngram_07, draft = map(figures_of, measured)
    assert plain.tokens_per_row == 1.0
    assert plain.mean_k == 0.0
    assert ngram_0.tokens_per_row == pytest.approx(1.0, abs=0.1), "rows begin one after another"
    assert ngram_07.tokens_per_row > 1.3
    assert "n-gram lookup" in ngram_07.critical
    assert draft.device_ms > plain.device_ms
    assert "scheduling" not in plain.busy


def test_parts_add_up_if_they_miss_the_whole_by_five_percent(measured: list[Measured]) -> None:
    found = replace(figures_of(measured[0]), cpu_ms=10.0)
    for ratio, adds_up in ((0.951, True), (1.049, True), (0.949, False), (1.051, False)):
        assert replace(found, parts_over_round=ratio).adds_up is adds_up
    for ratio, adds_up in ((0.951, True), (1.049, True), (0.94, False), (1.06, False)):
        assert replace(found, parts_over_cpu=ratio).cpu_adds_up is adds_up
    short = replace(found, cpu_ms=0.2, parts_over_cpu=0.9)
    assert short.cpu_adds_up, "clocks take as long as they do in long rounds"


def test_device_time_is_that_of_the_passes(measured: list[Measured]) -> None:
    plain = figures_of(measured[0])
    assert plain.device_ms == pytest.approx(1e3 * times_of(DeviceKind.H100).target(4, 1), rel=0.01)
    assert plain.round_ms == pytest.approx(plain.device_ms + plain.critical_ms, rel=0.05)


def test_a_slower_host_multiplies_all_results(measured: list[Measured]) -> None:
    once, thrice = figures_of(measured[0]), figures_of(measured[0], factor=3.0)
    assert thrice.round_ms == pytest.approx(3 * once.round_ms)
    assert thrice.device_ms == pytest.approx(3 * once.device_ms)
    assert thrice.critical["choice"] == pytest.approx(3 * once.critical["choice"])
    assert thrice.busy["choice"] == pytest.approx(3 * once.busy["choice"])
    assert thrice.cpu_ms == pytest.approx(3 * once.cpu_ms)
    assert thrice.tokens_per_s == pytest.approx(once.tokens_per_s / 3)
    assert thrice.parts_over_round == pytest.approx(once.parts_over_round)


def test_in_real_time_passes_take_real_time() -> None:
    lengths = Lengths(prompt=40, answer=8)
    bench = Bench(times_of(DeviceKind.H100), lengths, WallClock())
    found = figures_of(bench.measure(Cell(DeviceKind.H100, 1, Method.PLAIN)))
    assert found.round_ms >= found.device_ms == pytest.approx(6.69, rel=0.03)


def test_a_report_has_every_cell_and_part(measured: list[Measured], tmp_path: Path) -> None:
    figures = [figures_of(one) for one in measured]
    text = table(figures)
    assert "no figure is a measurement of a GPU" in text
    assert text.count("h100/4/ngram-0.7") == 3
    content = json.loads(json.dumps(as_json(figures, {"clock": "cpu"})))
    assert content["clock"] == "cpu"
    assert [cell["adds_up"] for cell in content["cells"]] == [one.adds_up for one in figures]
    assert plot(figures, tmp_path / "parts.png")
    assert (tmp_path / "parts.png").stat().st_size > 1000


def test_an_unknown_cell_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["h100/9/plain"]) == 2
    assert "h100/9/plain" in capsys.readouterr().err


_WITHOUT = """
import runpy, sys
for name in ("typer", "rich", "pydantic", "matplotlib", "ray", "grpc", "deployments"):
    sys.modules[name] = None
sys.argv = [{folder!r}, "none/1/ngram-0.7", "--plot", "never.png"]
try:
    runpy.run_path({folder!r}, run_name="__main__")
except SystemExit as end:
    assert end.code in (0, 1), end.code
import benchmarks, benchmarks.host_time.device as device
assert benchmarks.__file__.startswith({tree!r}), benchmarks.__file__
assert device.__file__.startswith({folder!r}), device.__file__
"""


def test_it_runs_by_its_folder_beside_another_tree_with_torch_alone(tmp_path: Path) -> None:
    """The other tree has no host_time of its own, as commits before it."""
    tree = tmp_path / "tree"
    (tree / "benchmarks").mkdir(parents=True)
    (tree / "benchmarks" / "__init__.py").touch()
    (tree / "specdec_core").symlink_to(ROOT / "specdec_core")
    folder = ROOT / "benchmarks" / "host_time"
    script = _WITHOUT.format(folder=str(folder), tree=str(tree))
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "none/1/ngram-0.7" in ended.stdout
    assert "no plot: matplotlib is not installed" in ended.stdout
