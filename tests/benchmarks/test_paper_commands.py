"""The commands of benchmarks.paper, end to end at the smallest sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.paper.commands import app

PAIR = ["--pair", "random-vicuna,recorded-0.7", "--scale", "64"]
SIZES = ["--sample", "3", "--max-tokens", "6", "--max-prompt-len", "8", "--spec-tokens", "2"]


def run(table: str, folder: Path, *arguments: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(app, [table, *arguments, "--output", str(folder)])
    assert done.exit_code == 0, done.output
    runs = json.loads((folder / f"{table}.json").read_text())["runs"]
    assert len(runs) == 1
    rows: list[dict[str, object]] = runs[0]["rows"]
    assert all("not_run" not in row for row in rows), rows
    return rows


@pytest.mark.slow
@pytest.mark.nightly
def test_overhead_tells_that_only_the_padded_algorithms_move_bytes(tmp_path: Path) -> None:
    arguments = ["--batch-sizes", "3", "--repeats", "1", "--dtype", "float32"]
    rows = run("overhead", tmp_path, *PAIR, *SIZES, *arguments)
    moved = {row["algorithm"]: row["aligned_bytes"] for row in rows}
    assert moved.pop("exspec") == 0
    assert all(moved.values()), moved


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("table", "arguments", "num_rows"),
    [
        ("equivalence", ["--batch-sizes", "2", "--dtypes", "float32", "--numerics", "fast"], 3),
        ("throughput", ["--batch-sizes", "1,2", "--repeats", "1", "--dtype", "float32"], 8),
        (
            "window",
            ["--batch-sizes", "2", "--ratios", "1,2", "--repeats", "1", "--dtype", "float32"],
            4,
        ),
        ("online", ["--batch-sizes", "2", "--dtype", "float32"], 3),
    ],
)
def test_a_command_stores_a_row_per_cell(
    table: str, arguments: list[str], num_rows: int, tmp_path: Path
) -> None:
    rows = run(table, tmp_path, *PAIR, *SIZES, *arguments)
    assert len(rows) == num_rows
    if table == "equivalence":
        assert all(row["num_equal"] == 3 for row in rows), rows


def test_grouping_needs_no_weights(tmp_path: Path) -> None:
    sizes = ["--prompts", "6", "--max-tokens", "6", "--window", "6", "--spec-tokens", "2"]
    rows = run("grouping", tmp_path, *sizes, "--batch-sizes", "2", "--probabilities", "0.7")
    assert [(row["lengths"], row["algorithm"]) for row in rows] == [
        ("random", "exspec-padded"),
        ("random", "exspec"),
        ("equal", "exspec-padded"),
        ("equal", "exspec"),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--pair", "smollm2-135m"], "TARGET,DRAFT"),
        (["--batch-sizes", "0"], "positive"),
        (["--algorithms", "medusa"], "medusa"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, ["overhead", *arguments])
    assert done.exit_code == 2
    assert complaint in done.output


def test_the_report_is_written_from_the_results(tmp_path: Path) -> None:
    document = tmp_path / "paper.md"
    done = CliRunner().invoke(
        app, ["report", "--results", str(tmp_path), "--document", str(document)]
    )
    assert done.exit_code == 0
    assert document.read_text().startswith("# The paper's tables")


@pytest.mark.parametrize(
    "table", ["equivalence", "overhead", "throughput", "grouping", "window", "online"]
)
def test_every_command_has_examples(table: str) -> None:
    done = CliRunner().invoke(app, [table, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert f"benchmarks.paper {table}" in done.output
