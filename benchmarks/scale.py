"""How many cells 64 targets and 32 drafts need, at what the coordinator costs.

Cells are alike and know nothing of each other: one of them is simulated. Its tokens per target are
held against those of one target with a draft of its own, and against those of the least cell that
shares drafts as the large ones do: two targets with one.

    python -m benchmarks.scale --costs benchmarks/results/coordinator_cost.json \
        --output benchmarks/results/scale.json --plot docs/img/scale.png
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness.commands import write_json
from deployments.cli.plotting import picture
from deployments.simulation.capacity_options import CapacityOptions
from deployments.simulation.capacity_runs import run
from specdec_core.config import KPolicyName

_TARGETS, _DRAFTS = 64, 32
_CELLS = (4, 8, 16)
_PASSES_MS = (12, 25, 50)
_GROUPS = (8, 32)
_BASES = {"one": (1, 1), "two": (2, 1)}
"""What a cell is held against -> its targets and drafts."""
_WARM_UP = 0.5
"""Of what is measured: as many seconds more before it."""
_SURE = 2.0
"""Standard errors on either side."""


@dataclass(frozen=True, slots=True)
class Run:
    """How long a point is simulated: as many passes whatever they take, so that all are as sure."""

    charge: dict[str, float]
    passes: int
    seeds: int


def main(
    costs: Annotated[Path, typer.Option(help="What benchmarks.coordinator_cost has written.")],
    passes: Annotated[int, typer.Option(min=1, help="Passes' time that is measured.")] = 320,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each point.")] = 4,
    output: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Print efficiency and the coordinator's busy share over pass times, groups and cells."""
    setting = Run(json.loads(costs.read_text())["charged"], passes, seeds)
    grid = list(product(_PASSES_MS, _GROUPS))
    points = [
        point
        for pass_ms, group in track(grid, description="grid")
        for point in _points(setting, pass_ms, group)
    ]
    for base in _BASES:
        _show(points, base)
    report = {"charged": setting.charge, "passes": passes, "seeds": seeds, "points": points}
    write_json(report, output)
    if plot is not None:
        _plot(points, plot)


def _points(setting: Run, pass_ms: int, group: int) -> list[dict[str, Any]]:
    bases = {
        name: _figures(setting, pass_ms, group, targets, drafts)
        for name, (targets, drafts) in _BASES.items()
    }
    points = []
    for cells in _CELLS:
        found = _figures(setting, pass_ms, group, _TARGETS // cells, _DRAFTS // cells)
        points.append(
            {
                "pass_ms": pass_ms,
                "group": group,
                "cells": cells,
                "efficiency": {name: _ratio(found, base) for name, base in bases.items()},
                **{f"{who}_busy": _mean(found, who) for who in ("coordinator", "target", "draft")},
                "tokens_per_second": fmean(_rates(found)) * _TARGETS,
            }
        )
    return points


def _figures(
    setting: Run, pass_ms: int, group: int, targets: int, drafts: int
) -> list[dict[str, Any]]:
    """One for each seed."""
    return [
        {"targets": targets, **_figures_of(setting, pass_ms, group, targets, drafts, seed)}
        for seed in range(setting.seeds)
    ]


def _figures_of(
    setting: Run, pass_ms: int, group: int, targets: int, drafts: int, seed: int
) -> dict[str, Any]:
    """Two groups' worth of clients for each target: one is drafted while one is verified."""
    seconds = setting.passes * pass_ms / 1e3
    options = CapacityOptions(
        verify_ms=f"{pass_ms}+{pass_ms * 0.002:g}",
        draft_ms=f"{pass_ms * 0.08:g}+{pass_ms * 0.0004:g}",
        targets=targets,
        drafts=drafts,
        acceptance=0.7,
        spec_tokens=4,
        spec_policy=KPolicyName.FIXED,
        batch_size=group,
        concurrency=2 * group * targets,
        prompt_len=128,
        output_len=128,
        seconds=seconds,
        warm_up=_WARM_UP * seconds,
        seed=1000 * seed,  # a cell's place is added to it
        **setting.charge,
    )
    figures: dict[str, Any] = run(options)["figures"]
    return figures


def _rates(found: list[dict[str, Any]]) -> list[float]:
    """Tokens per second of one target."""
    return [figures["tokens_per_second"] / figures["targets"] for figures in found]


def _ratio(found: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, float]:
    """Of the means over seeds, and how far it may be off."""
    many, few = _rates(found), _rates(base)
    ratio = fmean(many) / fmean(few)
    errors = (stdev(rates) / fmean(rates) / sqrt(len(rates)) for rates in (many, few))
    return {"mean": ratio, "off_by": _SURE * ratio * hypot(*errors)}


def _mean(found: list[dict[str, Any]], who: str) -> float:
    return fmean(figures[f"{who}_utilisation"] for figures in found)


def _show(points: list[dict[str, Any]], base: str) -> None:
    columns = (f"{cells} cells" for cells in _CELLS)
    targets, drafts = _BASES[base]
    title = f"efficiency from {targets} + {drafts} (coordinator, targets, drafts busy)"
    table = Table("pass ms", "group", *columns, title=title)
    for pass_ms, group in product(_PASSES_MS, _GROUPS):
        shown = (_cell(point, base) for point in _chosen(points, pass_ms, group))
        table.add_row(str(pass_ms), str(group), *shown)
    Console().print(table)


def _cell(point: dict[str, Any], base: str) -> str:
    efficiency = point["efficiency"][base]
    busy = " ".join(f"{point[f'{who}_busy']:.2f}" for who in ("coordinator", "target", "draft"))
    return f"{efficiency['mean']:.2f}±{efficiency['off_by']:.2f} ({busy})"


def _chosen(points: list[dict[str, Any]], pass_ms: int, group: int) -> list[dict[str, Any]]:
    return [p for p in points if (p["pass_ms"], p["group"]) == (pass_ms, group)]


def _plot(points: list[dict[str, Any]], path: Path) -> None:
    with picture(path, 11, 4.5) as figure:
        axes = figure.subplots(1, len(_BASES), sharey=True)
        for axis, (base, (targets, drafts)) in zip(axes, _BASES.items(), strict=True):
            _draw(axis, points, base)
            axis.set_title(
                f"over {targets} target{'s' * (targets > 1)} and {drafts} draft", size=10
            )
        axes[0].set_ylabel("tokens/s of a target (simulated)")
        axes[0].legend(fontsize=8)


def _draw(axis: Any, points: list[dict[str, Any]], base: str) -> None:
    for pass_ms, group in product(_PASSES_MS, _GROUPS):
        found = [point["efficiency"][base] for point in _chosen(points, pass_ms, group)]
        axis.errorbar(
            _CELLS,
            [efficiency["mean"] for efficiency in found],
            [efficiency["off_by"] for efficiency in found],
            fmt="o--" if group == max(_GROUPS) else "o-",
            capsize=2,
            label=f"{pass_ms} ms, groups of {group}",
        )
    axis.axhline(0.9, color="grey", linewidth=1)
    axis.set_xticks(_CELLS)
    axis.set_xlabel("cells of 64 targets and 32 drafts")


if __name__ == "__main__":
    typer.run(main)
