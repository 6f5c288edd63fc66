"""Lists of a command line, and result files that are whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.harness.commands import errors_told, known, numbers, write_json
from deployments.config.flags import comma_names
from specdec_core.errors import InvalidRequestError


def test_lists_are_separated_by_commas() -> None:
    assert comma_names(" a, b,,c ") == ("a", "b", "c")
    assert numbers("1,8") == (1, 8)
    assert numbers("") == ()
    with pytest.raises(InvalidRequestError, match="'1,x' is not a list of numbers"):
        numbers("1,x")


def test_a_name_that_is_not_known_is_refused_with_those_that_are() -> None:
    parse = known("engine", ("specdec", "vllm"))
    assert parse("vllm,specdec") == ("vllm", "specdec")
    with pytest.raises(InvalidRequestError, match="no engine 'tgi'; known are: specdec, vllm"):
        parse("vllm,tgi")
    with pytest.raises(InvalidRequestError, match="no engine at all"):
        parse("")


def test_a_result_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    write_json({"speed": 1.0, "input": Path("a.jsonl")}, path)
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        write_json(circle, path)
    assert json.loads(path.read_text()) == {"speed": 1.0, "input": "a.jsonl"}
    assert list(tmp_path.iterdir()) == [path]
    write_json(circle, None)


def test_a_refusal_ends_the_command_with_its_text_alone() -> None:
    app = typer.Typer()

    @app.command()
    def run() -> None:
        with errors_told():
            raise InvalidRequestError("no such engine")

    found = CliRunner().invoke(app)
    assert found.exit_code == 1
    assert found.output == "Error: no such engine\n"
