"""Whole rounds against a server without an engine, in processes as they are measured."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from benchmarks.harness.commands import write_json
from benchmarks.harness.ports import free_port
from benchmarks.served_peers import measurement
from benchmarks.served_peers.commands import app
from benchmarks.served_peers.engines import SERVERS, Server, Site
from benchmarks.served_peers.measurement import Measurement
from benchmarks.served_peers.options import RunOptions
from benchmarks.served_peers.prompts import Prompts

_ROOT = str(Path(__file__).parents[3])


def fake(name: str) -> Server:
    module = "tests.benchmarks.served_peers.fake_server"
    return Server(
        name=name,
        command=lambda site: [sys.executable, "-m", module, str(site.port), "vllm"],
        variables=lambda site: {"PYTHONPATH": f"{_ROOT}:{_ROOT}/proto"},
        ready_path="/health",
        unshared=lambda name: {"cache_salt": name},
    )


def options(folder: Path, **how: Any) -> RunOptions:
    site = Site(
        model=str(folder),
        venvs=folder,
        llama_cpp=None,
        port=free_port(),
        threads=1,
        max_streams=2,
        max_model_len=128,
    )
    settings: dict[str, Any] = {
        "engines": ("specdec", "vllm"),
        "rounds": 1,
        "streams": (1, 2),
        "long_streams": (1,),
        "prompts": ("short",),
        "pairs": 2,
        "pair_temperatures": (0.0, 0.8),
        "pair_prompts": ("short",),
        "spec_tokens": (),
        "off_pairs": False,
        "first_requests": 3,
        "first_streams": 2,
        "max_tokens": 4,
        "site": site,
        "ready_timeout_s": 30.0,
        "timeout_s": 30.0,
    }
    return RunOptions(**{**settings, **how})


@pytest.fixture
def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prompts, "median_tokens", lambda prompts, folder, kind: 40.0)


@pytest.mark.usefixtures("no_tokenizer")
def test_every_engine_has_its_turn_and_one_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "SERVERS", {**SERVERS, "specdec": fake("specdec")})
    asked = options(tmp_path)
    told: Counter[int] = Counter()
    kept: list[int] = []
    before = set(psutil.Process().children())
    measured = Measurement(
        asked, Prompts(), lambda what, done: told.update([done]), lambda: kept.append(1)
    )
    measured.run()
    write_json(measured.found(), tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    parts = Counter(each["part"] for each in found["readings"])
    assert parts == {"first": 2, "cells": 2, "pairs": 2 * 2 * 2 * 4}
    orders = [each["speculation"] for each in found["readings"] if each["part"] == "pairs"]
    assert orders[:4] == ["on", "off", "off", "on"]
    assert orders[-4:] == ["off", "on", "on", "off"]
    assert len(found["starts"]) == 2, "the first requests without speculation have their own"
    assert all(start["ready_s"] > 0 for start in found["starts"])
    assert all(each["resident_mib"] > 1 for each in found["readings"])
    ((engine, reason),) = [entry.values() for entry in found["not_run"]]
    assert engine == "vllm"
    assert "no environment" in reason
    assert told[1] == len(found["readings"])
    assert len(kept) == 2, "after every engine"
    assert asked.num_loads - len(found["readings"]) == 2, "those of the missing engine"
    assert set(psutil.Process().children()) <= before, "no server is left"


@pytest.mark.usefixtures("no_tokenizer")
def test_every_other_k_has_a_server_of_its_own_for_text_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "SERVERS", {**SERVERS, "specdec": fake("specdec")})
    asked = options(
        tmp_path,
        engines=("specdec",),
        streams=(1,),
        pairs=1,
        pair_temperatures=(0.0,),
        pair_prompts=("edit",),
        spec_tokens=(4,),
        off_pairs=True,
        first_requests=0,
    )
    measured = Measurement(asked, Prompts(), lambda what, done: None, lambda: None)
    measured.run()
    found = measured.found()
    assert found["not_run"] == []
    assert [start["command"][-2:] for start in found["starts"]][1:] == [["--spec-tokens", "4"]]
    pairs = [each for each in found["readings"] if each["part"] == "pairs"]
    arms = [(each["speculation"], each["engine"]) for each in pairs]
    half = [
        ("on", "specdec"),
        ("on, K = 4", "specdec-k4"),
        ("off", "specdec"),
        ("off again", "specdec"),
    ]
    assert arms == half + half[::-1]
    assert all(each["prompts"] == "edit" and each["decode_tokens"] > 0 for each in pairs)
    assert asked.num_loads == len(found["readings"])


def test_paired_turns_are_spread_over_the_rounds(tmp_path: Path) -> None:
    asked = options(tmp_path, rounds=3, pairs=10)
    numbers = [number for place in range(3) for number in asked.pair_numbers(place)]
    assert numbers == list(range(10))


def test_long_prompts_may_have_fewer_streams(tmp_path: Path) -> None:
    cells = options(tmp_path, prompts=("short", "long")).cells(0)
    assert [(cell.prompts, cell.streams) for cell in cells] == [
        *(("short", 1), ("short", 2)),
        ("long", 1),
    ]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--engines", "specdec,tgi"], "no engine 'tgi'; known are: specdec, engine, vllm"),
        (["--prompts", "middle"], "no kind of prompts 'middle'"),
        (["--prompts", "edit"], "no kind of prompts 'edit'"),
        (["--pair-prompts", "edits"], "no kind of prompts for pairs 'edits'"),
        (["--streams", "0"], "streams are at least 1"),
        (["--streams", "a"], "'a' is not a list of numbers"),
        (["--rounds", "0"], "greater than or equal to 1"),
        (["--pairs", "-1"], "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, flags: list[str], told: str) -> None:
    found = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["run", "--venvs", str(tmp_path), *flags])
    assert found.exit_code != 0
    assert told in found.output or told in str(found.exception)
