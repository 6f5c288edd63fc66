"""Does a draft accelerator pay? Four accelerators in different layouts, simulated from step costs.

Once for a pair whose steps were measured (benchmarks.step_times), once for drafts whose step takes
some share of a target's. The pool is the real one, with the K controller on.

    python -m benchmarks.studies.draft_accelerator.simulated \
        --steps benchmarks/results/step_times.json
    python -m benchmarks.studies.draft_accelerator.simulated --plot sweep.png
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.machine import commit
from benchmarks.studies.draft_accelerator.layouts import PLAIN, cost, num_devices, per_device
from deployments.cli.plotting import picture
from deployments.simulation.capacity_options import CapacityOptions, run
from specdec_core.config import KPolicyName

_ACCEPTANCES = (0.5, 0.7, 0.9)
_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Of a draft's step to a target's pass."""
_BASE_MS, _TOKEN_MS = 25.0, 0.05
"""The target of the sweep: a pass, and so much more for each fed token."""
_LOADS = {"low": 4, "high": 64}
"""Clients that always wait: one for each accelerator, two groups for each."""
_PRICES = {"1:1": (1.0, 1.0), "4:1": (4.0, 1.0)}
"""Of a target's accelerator and a draft's, per hour."""

Layouts = list[dict[str, Any]]
"""What one run says of each."""


@dataclass(frozen=True, slots=True)
class World:
    """A cell of the table, and how it is simulated."""

    label: dict[str, Any]
    options: CapacityOptions


def main(
    steps: Annotated[
        Path | None, typer.Option(help="What benchmarks.step_times has written; else the sweep.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Simulated and measured, behind as many that are not.")
    ] = 10.0,
    seeds: Annotated[int, typer.Option(help="Runs of every cell; the table has their means.")] = 3,
    output: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Print tokens per second and cost by layout; a plot of the sweep."""
    worlds = list(_sweep(seconds) if steps is None else _measured(steps, seconds))
    cells = [_cell(*one) for one in zip(worlds, _run_all(worlds, seeds), strict=True)]
    _show(cells)
    if output is not None:
        told = {"commit": commit(), "seconds": seconds, "seeds": seeds, "cells": cells}
        output.write_text(json.dumps(told, indent=1) + "\n")
    if plot is not None:
        _plot(cells, plot)


def _measured(steps: Path, seconds: float) -> Iterator[World]:
    found = json.loads(steps.read_text())
    verify, draft = (_table(found[name]) for name in ("verify_ms", "draft_ms"))
    return _worlds({"pair": found["pair"]}, verify, draft, seconds)


def _sweep(seconds: float) -> Iterator[World]:
    verify = f"{_BASE_MS}+{_TOKEN_MS}"
    for ratio in _RATIOS:
        draft = f"{ratio * _BASE_MS:g}+{ratio * _TOKEN_MS:g}"
        yield from _worlds({"ratio": ratio}, verify, draft, seconds)


def _table(points: dict[str, float]) -> str:
    return ",".join(f"{rows}:{ms:.3f}" for rows, ms in points.items())


def _worlds(
    label: dict[str, Any], verify_ms: str, draft_ms: str, seconds: float
) -> Iterator[World]:
    for acceptance, (load, clients) in product(_ACCEPTANCES, _LOADS.items()):
        options = _options(verify_ms, draft_ms, acceptance, clients, seconds)
        yield World({**label, "acceptance": acceptance, "load": load}, options)


def _run_all(worlds: list[World], seeds: int) -> list[list[Layouts]]:
    """For each of `worlds` a run of every seed; on all cores."""
    asked = [replace(world.options, seed=seed) for world in worlds for seed in range(seeds)]
    with ProcessPoolExecutor() as workers:
        runs = list(track(workers.map(_layouts, asked), total=len(asked), description="runs"))
    return [runs[first : first + seeds] for first in range(0, len(runs), seeds)]


def _layouts(options: CapacityOptions) -> Layouts:
    return list(run(options)["layouts"])


def _cell(world: World, runs: list[Layouts]) -> dict[str, Any]:
    rates = _by_layout(runs, "tokens_per_second")
    kept = {name: mean(own) for name, own in rates.items()}
    busy = [_by_layout(runs, f"{role}_utilisation") for role in ("target", "draft")]
    return {
        **world.label,
        "tokens_per_second": kept,
        "by_seed": rates,
        "utilisation": {name: [_mean(share[name]) for share in busy] for name in kept},
        "cost_per_million": {
            prices: {name: cost(name, rate, *each) for name, rate in kept.items()}
            for prices, each in _PRICES.items()
        },
    }


def _by_layout(runs: list[Layouts], key: str) -> dict[str, list[Any]]:
    """Of every seed; the layouts in the order of their names."""
    found = [{row["layout"]: row[key] for row in layouts} for layouts in runs]
    return {name: [one[name] for one in found] for name in sorted(found[0])}


def _mean(shares: list[Any]) -> float | None:
    """None where a layout has nobody of the role."""
    return None if None in shares else mean(shares)


def _options(
    verify_ms: str, draft_ms: str, acceptance: float, clients: int, seconds: float
) -> CapacityOptions:
    return CapacityOptions(
        verify_ms=verify_ms,
        draft_ms=draft_ms,
        targets=int(sum(num_devices(PLAIN))) - 1,
        drafts=1,
        cells=1,
        acceptance=acceptance,
        spec_tokens=4,
        spec_policy=KPolicyName.GOODPUT,
        batch_size=8,
        window=None,
        request_rate=None,
        burstiness=1.0,
        concurrency=clients,
        trace_file=None,
        prompt_len=128,
        output_len=128,
        seconds=seconds,
        warm_up=seconds,
        row_us=15.0,
        message_us=130.0,
        event_us=14.0,
        recommend=True,
        target_price=1.0,
        draft_price=1.0,
        seed=0,
    )


def _show(cells: list[dict[str, Any]]) -> None:
    names = list(per_device(cells[0]["tokens_per_second"]))
    table = Table("draft", "acceptance", "load", *names, title="tokens/s per accelerator; cost 4:1")
    for cell in cells:
        rates, costs = per_device(cell["tokens_per_second"]), cell["cost_per_million"]["4:1"]
        shown = (f"{rates[name]:.1f}; {costs[name]:.2f}" for name in names)
        draft = str(cell.get("ratio", "measured"))
        table.add_row(draft, str(cell["acceptance"]), cell["load"], *shown)
    Console(width=200).print(table)


def _plot(cells: list[dict[str, Any]], path: Path) -> None:
    with picture(path, 12, 7) as figure:
        axes = figure.subplots(2, 3, sharex=True, sharey=True)
        for axis, (load, acceptance) in zip(axes.flat, product(_LOADS, _ACCEPTANCES), strict=True):
            chosen = [c for c in cells if c["load"] == load and c["acceptance"] == acceptance]
            rates = [per_device(cell["tokens_per_second"]) for cell in chosen]
            for name in rates[0]:
                if name != PLAIN:
                    over = [one[name] / one[PLAIN] for one in rates]
                    axis.plot([c["ratio"] for c in chosen], over, marker="o", label=name)
            axis.axhline(1.0, color="grey", linewidth=1, label=PLAIN)
            axis.set_title(f"{load} load, acceptance {acceptance}")
            axis.set_xscale("log")
            axis.set_xticks(_RATIOS, [str(ratio) for ratio in _RATIOS])
            axis.minorticks_off()
        axes[0][0].legend(fontsize=8)
        figure.supxlabel("a draft's step over a target's pass")
        figure.supylabel("tokens/s per accelerator over plain decoding (simulated)")


if __name__ == "__main__":
    typer.run(main)
