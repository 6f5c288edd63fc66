"""One comparison from its options: processes, rounds, and what is stored of them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.harness.commands import Report
from benchmarks.harness.machine import cpu_name
from benchmarks.peers.cells import NotRun, Seat, cells_of, seat_of
from benchmarks.peers.engines import ENGINES, EngineSpec, environment, python_of
from benchmarks.peers.options import RunOptions
from benchmarks.peers.processes import RunnerProcess
from benchmarks.peers.report import comparisons, records
from benchmarks.peers.rounds import Rounds
from specdec_core.errors import InvalidRequestError

_LEAST_FREE_BYTES = 4 << 30
"""What a runner is not started below: the largest that was measured takes 5 GiB."""
_REPOSITORY = Path(__file__).parents[2]


class Comparison:
    def __init__(self, options: RunOptions, prompts: Sequence[tuple[int, ...]]) -> None:
        self._options = options
        self._prompts = prompts
        self._cells, self._not_run = cells_of(options.specs, options.axes)
        if not self._cells:
            raise InvalidRequestError("no engine has any of these methods at these batch sizes")

    @property
    def num_turns(self) -> int:
        """With a warm-up for every cell."""
        return len(self._cells) * (self._options.repeats + 1)

    def measure(self, report: Report) -> dict[str, Any]:
        rounds = Rounds(
            self._start,
            lambda seat: self._options.load(seat, self._prompts),
            lambda cell: self._options.turn(cell, self._prompts),
            report,
        )
        load_average = os.getloadavg()[0]
        seats = {cell: seat_of(cell, ENGINES[cell.engine]) for cell in self._cells}
        measured = rounds.run(seats, self._options.repeats)
        return {
            "settings": self._settings(),
            "machine": {**machine(), "load_average": load_average},
            "engines": measured.facts,
            "cells": records(measured.runs),
            "comparisons": comparisons(measured.runs),
            "not_run": [entry._asdict() for entry in (*self._not_run, *measured.not_run)],
        }

    def _start(self, seat: Seat) -> RunnerProcess | NotRun:
        spec = ENGINES[seat.engine]
        reason = self._cannot_start(spec)
        if reason is None:
            return self._process(seat, spec)
        return NotRun(seat.name, reason)

    def _cannot_start(self, spec: EngineSpec) -> str | None:
        options = self._options
        if spec.venv is not None and python_of(spec, options.venvs) is None:
            return (
                f"no environment in {options.venvs / spec.venv}: run `python -m benchmarks.peers "
                f"setup --venvs {options.venvs} --engines {spec.name}`"
            )
        if spec.needs_checkout and not (options.paper_checkout or Path()).joinpath("src").is_dir():
            return "needs --paper-checkout: a folder of the paper's public code"
        if spec.needs_llama_cpp and options.llama_cpp is None:
            return "needs --llama-cpp: a folder of llama.cpp with its build"
        free = psutil.virtual_memory().available
        if free < _LEAST_FREE_BYTES:
            return f"only {free >> 20} MiB of memory are free"
        return None

    def _process(self, seat: Seat, spec: EngineSpec) -> RunnerProcess:
        options = self._options
        python = sys.executable if spec.venv is None else str(python_of(spec, options.venvs))
        logs = options.venvs / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return RunnerProcess(
            [python, "-m", spec.runner],
            variables={
                **environment(spec, options.venvs, options.threads),
                "PYTHONPATH": str(_REPOSITORY),
            },
            log=logs / f"{seat.name.replace(os.sep, '_')}.log",
            timeout_s=options.timeout_s,
        )

    def _settings(self) -> dict[str, Any]:
        return {
            **asdict(self._options),
            "prompts": len(self._prompts),
            "prompt_tokens": sum(len(prompt) for prompt in self._prompts),
            "weights": {spec.name: spec.weights.value for spec in self._options.specs},
        }


def machine() -> dict[str, Any]:
    """What decides figures besides the programs."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
    }
