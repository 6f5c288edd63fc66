"""Time of the host between two passes, by part, against a modelled device.

python -m benchmarks.host_time                       the default cells, 1 to 2 minutes
python -m benchmarks.host_time h100/64/draft none/128/ngram-0.7
PYTHONPATH=OLD python benchmarks/host_time check     on the commit that OLD has checked out
PYTHONPATH=OLD python benchmarks/host_time --factor  the GPU host's factor, on ecea5c2
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import specdec_core
from benchmarks.harness.machine import cpu_name
from benchmarks.host_time.cells import SUBSETS, Cell, DeviceKind, Method, chosen, times_of
from benchmarks.host_time.check import COMMIT, comparison
from benchmarks.host_time.clocks import ClockKind, clock_of
from benchmarks.host_time.host_factor import (
    RECORDED,
    HostFactor,
    factor_of,
    profiled,
    recorded_costs,
)
from benchmarks.host_time.one_process import Bench, Lengths, Measured
from benchmarks.host_time.parts import Spans
from benchmarks.host_time.report import as_json, figures_of, plot, table

_PROFILED = Cell(DeviceKind.H100, 64, Method.DRAFT)
"""The cell whose profile `rounds_of_one_engine.txt` has."""
_NUM_PROFILES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the parts of each cell add up to its rounds, and by CPU clock to its CPU time."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    if options.factor:
        print(_factor_table(_host_factor()))
        return 0
    try:
        cells = chosen(options.cells or ["default"])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = [
        measured
        for kind in DeviceKind
        for measured in _measure([cell for cell in cells if cell.device is kind], options)
    ]
    figures = [figures_of(one, options.slower) for one in found]
    missing = sorted({name for one in found for name in one.missing})
    print(f"specdec_core at {_commit() or 'no commit'}: {Path(specdec_core.__file__).parent}")
    print(table(figures))
    for name in missing:
        print(f"not clocked, because this commit lacks it: {name}")
    if _commit().startswith(COMMIT):
        print("\n".join(comparison(figures, Lengths().answer)))
    if options.output:
        context = {**_environment(), "clock": options.clock, "slower": options.slower}
        content = as_json(figures, {**context, "not_clocked": missing})
        options.output.write_text(json.dumps(content, indent=1) + "\n")
    if options.plot and not plot(figures, options.plot):
        print("no plot: matplotlib is not installed")
    counts_cpu = options.clock is ClockKind.CPU
    add_up = [one.adds_up and (one.cpu_adds_up or not counts_cpu) for one in figures]
    return 0 if all(add_up) else 1


def _measure(cells: Sequence[Cell], options: argparse.Namespace) -> list[Measured]:
    """Measure the cells of one device."""
    if not cells:
        return []
    times = times_of(cells[0].device, options.prices).scaled(1 / options.slower)
    bench = Bench(times, Lengths(), clock_of(options.clock))
    return [bench.measure(cell, is_profiled=options.functions) for cell in cells]


def _host_factor() -> HostFactor:
    bench = Bench(times_of(DeviceKind.H100), Lengths(), clock_of(ClockKind.CPU))
    with bench.decoding(_PROFILED) as decode:
        spans = Spans()
        decode(spans)
        runs = [profiled(lambda: decode(spans)) for _ in range(_NUM_PROFILES)]
    return factor_of(recorded_costs(RECORDED.read_text()), runs)


def _factor_table(found: HostFactor) -> str:
    lines = [f"{'function':<46}{'calls':>8}{'there, us':>11}{'here, us':>10}{'ratio':>7}"]
    for one in found.functions:
        lines.append(
            f"{' '.join(one.name):<46}{one.num_calls:>8}{one.there_s * 1e6:>11.2f}"
            f"{one.here_s * 1e6:>10.2f}{one.ratio:>7.2f}"
        )
    lines.append(
        f"the H100's host takes {found.factor:.2f} times as long for these calls "
        f"(median of the functions: {found.median:.2f})"
    )
    return "\n".join(lines)


def _environment() -> dict[str, Any]:
    return {
        "commit": _commit(),
        "processor": cpu_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lengths": {"prompt": Lengths().prompt, "answer": Lengths().answer},
    }


def _commit() -> str:
    """Return the commit of the tree that `specdec_core` comes from; empty if it is unknown."""
    folder = Path(specdec_core.__file__).parent
    command = ["git", "-C", os.fspath(folder), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="host_time", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cells",
        nargs="*",
        help=f"Cells to measure: {', '.join(SUBSETS)}, or DEVICE/ROWS/METHOD. Default: default.",
    )
    parser.add_argument(
        "--factor",
        action="store_true",
        help="Print how much slower the H100's host is than this one, and measure nothing else.",
    )
    parser.add_argument(
        "--functions",
        action="store_true",
        help="Profile one more run of each cell. --output gets the CPU time of its functions.",
    )
    parser.add_argument(
        "--slower",
        type=float,
        default=1.0,
        help="Factor by which the modelled host is slower than this one. Default: 1.",
    )
    parser.add_argument(
        "--clock",
        type=ClockKind,
        choices=list(ClockKind),
        default=ClockKind.CPU,
        help="Seconds that count: the thread's CPU time, or real time. Default: cpu.",
    )
    parser.add_argument(
        "--prices",
        type=Path,
        default=Path(__file__).parents[1] / "results" / "pass_prices.json",
        help="Pass times of the processor, from benchmarks.pass_prices. Default: those in results.",
    )
    parser.add_argument("--output", type=Path, help="JSON file to write. Default: none.")
    parser.add_argument("--plot", type=Path, help="Image file to write. Default: none.")
    return parser
