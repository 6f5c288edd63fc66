"""The command line under test, called in this process."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
import typer.main

from deployments.cli.main import main
from specdec_core.batch_invariance import linear as exact_linear
from specdec_core.batch_invariance.attention import find_attention_shape
from specdec_core.batch_invariance.linear import find_row_range
from specdec_core.batch_invariance.size_classes import SizeSet
from specdec_core.kv_cache.paged import KVShape
from specdec_core.layers.attention.metadata import AttentionShape
from specdec_core.loading import self_check as exact
from tests.cli.tiny_folder import make_tiny_folder


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


Specdec = Callable[..., Outcome]


def status_of(*arguments: object) -> int:
    """The exit status of `specdec` with these arguments."""
    with patch.object(sys, "argv", ["specdec", *map(str, arguments)]):
        status: Any = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        return int(status or 0)


@pytest.fixture
def specdec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Specdec:
    """Run `specdec` with these arguments."""
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setattr(typer.main, "get_command", _command_of)

    def run(*arguments: object) -> Outcome:
        status = status_of(*arguments)
        return Outcome(status, *capsys.readouterr())

    return run


_command_of = functools.cache(typer.main.get_command)
"""Typer reads the flags of all commands anew at every call, which takes 0.05 s."""


@pytest.fixture(autouse=True)
def shapes_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine does with a shape is measured at every load, a second each time; here it is
    taken from an earlier load of this process. Rows are still checked with every model."""
    monkeypatch.setattr(exact_linear, "find_row_range", _row_range)
    monkeypatch.setattr(exact, "find_attention_shape", _attention_shape)


def _row_range(linear: exact_linear.Linear) -> SizeSet:
    facts = (linear.in_features, linear.out_features, linear.bias is None, torch.get_num_threads())
    kind = (type(linear), exact_linear._dtype(linear), exact_linear._device(linear))
    if (kind, facts) not in _ROW_RANGES:
        _ROW_RANGES[kind, facts] = find_row_range(linear)
    return _ROW_RANGES[kind, facts]


def _attention_shape(kv: KVShape, num_heads: int, max_model_len: int) -> AttentionShape:
    facts = (kv, num_heads, max_model_len, torch.get_num_threads())
    if facts not in _ATTENTION_SHAPES:
        _ATTENTION_SHAPES[facts] = find_attention_shape(kv, num_heads, max_model_len)
    return _ATTENTION_SHAPES[facts]


_ROW_RANGES: dict[Any, SizeSet] = {}
_ATTENTION_SHAPES: dict[Any, AttentionShape] = {}


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
