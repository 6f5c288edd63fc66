"""Figures of measured cells, in milliseconds a round, as tables, JSON and a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness.processes import Kind
from benchmarks.host_time.report import draw_stacked
from benchmarks.host_time.served.parts import Part, Round
from benchmarks.host_time.served.snapshot import CLIENT, RAY
from benchmarks.host_time.served.waiting import CpuUse
from deployments.cli.plotting import picture

NOTE = "Passes of the devices are modelled: no figure is a measurement of a GPU."
_PROCESSES = (*Kind, RAY, CLIENT)
"""In the order of the columns."""

Rounds = Mapping[str, Round]
"""By the names of their cells."""
Use = Mapping[str, CpuUse]
"""By the names of the processes."""


def tables(rounds: Rounds, use_of_a_request: Use) -> list[Table]:
    """Return the parts of every cell, then the use of the processor."""
    others = ("parts/whole", "drafted", "accepted")
    parts = Table("cell", "rounds", "whole", "host", *Part, *others, title="ms a round, by part")
    for name, one in rounds.items():
        total = sum(one.parts_s.values()) / one.whole_s
        mark = "" if one.adds_up else " (!)"
        cells = (_ms(seconds) for seconds in (one.whole_s, one.host_s, *one.parts_s.values()))
        tokens = (f"{count:.1f}" for count in (one.drafted, one.accepted))
        parts.add_row(name, f"{one.num_rounds:.0f}", *cells, f"{total:.3f}{mark}", *tokens)
    title = "ms a round, by process: CPU time / waiting for a core"
    use = Table("cell", *_PROCESSES, title=title)
    for name, one in rounds.items():
        use.add_row(name, *(_use(one.use, process) for process in _PROCESSES))
    if use_of_a_request:
        cells = (_use(use_of_a_request, process) for process in _PROCESSES)
        use.add_row("a request of one token", *cells)
    return [parts, use]


def _use(use: Use, process: str) -> str:
    if process not in use:
        return "-"
    return f"{_ms(use[process].cpu_s)} / {_ms(use[process].waited_s)}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def as_json(rounds: Rounds, use_of_a_request: Use, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result file contains."""
    cells = [_cell(*item) for item in rounds.items()]
    return {"note": NOTE, **context, "cells": cells, "request": _use_json(use_of_a_request)}


def _cell(name: str, one: Round) -> dict[str, Any]:
    return {
        "cell": name,
        "rounds": one.num_rounds,
        "round_ms": 1e3 * one.whole_s,
        "host_ms": 1e3 * one.host_s,
        "parts_ms": {part.value: 1e3 * seconds for part, seconds in one.parts_s.items()},
        "parts_over_round": sum(one.parts_s.values()) / one.whole_s,
        "adds_up": one.adds_up,
        **_use_json(one.use),
        "drafted_tokens": one.drafted,
        "accepted_tokens": one.accepted,
    }


def _use_json(use: Use) -> dict[str, dict[str, float]]:
    return {
        "cpu_ms": {name: 1e3 * own.cpu_s for name, own in use.items()},
        "waited_ms": {name: 1e3 * own.waited_s for name, own in use.items()},
    }


def plot(rounds: Rounds, path: Path) -> None:
    """Draw the parts and the CPU time of each cell."""
    cells = {name: _cell(name, one) for name, one in rounds.items()}
    parts, cpu = ({n: cell[k] for n, cell in cells.items()} for k in ("parts_ms", "cpu_ms"))
    with picture(path, 13, 1.5 + 0.35 * len(rounds)) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        draw_stacked(axes[0], parts, Part, "round, ms by part")
        draw_stacked(axes[1], cpu, _PROCESSES, "CPU time, ms a round by process")
        axes[0].invert_yaxis()
        figure.suptitle(NOTE, fontsize="small")
