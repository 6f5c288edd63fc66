"""The command line under test, called in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deployments.cli import main
from tests.cli.tiny_folder import make_tiny_folder


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


Specdec = Callable[..., Outcome]


@pytest.fixture
def specdec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Specdec:
    """Run `specdec` with these arguments."""
    monkeypatch.setenv("COLUMNS", "500")

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["specdec", *map(str, arguments)])
        status: Any = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        return Outcome(int(status or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Write an input file, one JSON object a line; a string is written as it is."""

    def write(*lines: object) -> Path:
        path = tmp_path / "input.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n")
        return path

    return write
