"""How many cells 64 targets and 32 drafts need, at what the coordinator costs.

Cells are alike and know nothing of each other: one of them is simulated, and its tokens per target
are held against those of one target with a draft of its own.

    python -m benchmarks.scale --costs benchmarks/results/coordinator_cost.json \
        --output benchmarks/results/scale.json --plot docs/img/scale.png
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deployments.simulation.capacity_options import CapacityOptions, run
from specdec_core.config import KPolicyName

_TARGETS, _DRAFTS = 64, 32
_CELLS = (4, 8, 16)
_PASSES_MS = (12, 25, 50)
_GROUPS = (8, 32)


def main(
    costs: Annotated[Path, typer.Option(help="What benchmarks.coordinator_cost has written.")],
    seconds: float = 1.0,
    output: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Print efficiency and the coordinator's busy share over pass times, groups and cells."""
    charge = json.loads(costs.read_text())["charged"]
    grid = list(product(_PASSES_MS, _GROUPS))
    points = [
        point
        for pass_ms, group in track(grid, description="grid")
        for point in _points(charge, pass_ms, group, seconds)
    ]
    _show(points)
    if output is not None:
        output.write_text(json.dumps({"charged": charge, "points": points}, indent=1) + "\n")
    if plot is not None:
        _plot(points, plot)


def _points(
    charge: dict[str, float], pass_ms: int, group: int, seconds: float
) -> list[dict[str, Any]]:
    alone = _figures(charge, pass_ms, group, 1, 1, seconds)["tokens_per_second"]
    points = []
    for cells in _CELLS:
        targets = _TARGETS // cells
        found = _figures(charge, pass_ms, group, targets, _DRAFTS // cells, seconds)
        points.append(
            {
                "pass_ms": pass_ms,
                "group": group,
                "cells": cells,
                "efficiency": found["tokens_per_second"] / targets / alone,
                "coordinator_busy": found["coordinator_utilisation"],
                "tokens_per_second": found["tokens_per_second"] * cells,
            }
        )
    return points


def _figures(
    charge: dict[str, float], pass_ms: int, group: int, targets: int, drafts: int, seconds: float
) -> dict[str, Any]:
    """Two groups' worth of clients for each target: one is drafted while one is verified."""
    options = CapacityOptions(
        verify_ms=f"{pass_ms}+{pass_ms * 0.002:g}",
        draft_ms=f"{pass_ms * 0.08:g}+{pass_ms * 0.0004:g}",
        targets=targets,
        drafts=drafts,
        cells=1,
        acceptance=0.7,
        spec_tokens=4,
        spec_policy=KPolicyName.FIXED,
        batch_size=group,
        window=None,
        request_rate=None,
        burstiness=1.0,
        concurrency=2 * group * targets,
        trace_file=None,
        prompt_len=128,
        output_len=128,
        seconds=seconds,
        warm_up=seconds,
        recommend=False,
        target_price=1.0,
        draft_price=1.0,
        seed=0,
        **charge,
    )
    figures: dict[str, Any] = run(options)["figures"]
    return figures


def _show(points: list[dict[str, Any]]) -> None:
    columns = (f"{cells} cells" for cells in _CELLS)
    table = Table("pass ms", "group", *columns, title="efficiency (coordinator's share)")
    for pass_ms, group in product(_PASSES_MS, _GROUPS):
        chosen = _chosen(points, pass_ms, group)
        shown = (f"{p['efficiency']:.2f} ({p['coordinator_busy']:.2f})" for p in chosen)
        table.add_row(str(pass_ms), str(group), *shown)
    Console().print(table)


def _chosen(points: list[dict[str, Any]], pass_ms: int, group: int) -> list[dict[str, Any]]:
    return [p for p in points if (p["pass_ms"], p["group"]) == (pass_ms, group)]


def _plot(points: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.5))
    for pass_ms, group in product(_PASSES_MS, _GROUPS):
        chosen = _chosen(points, pass_ms, group)
        label = f"{pass_ms} ms, groups of {group}"
        style = "--" if group == max(_GROUPS) else "-"
        axis.plot(_CELLS, [p["efficiency"] for p in chosen], style, marker="o", label=label)
    axis.axhline(0.9, color="grey", linewidth=1)
    axis.set_xticks(_CELLS)
    axis.set_xlabel("cells of 64 targets and 32 drafts")
    axis.set_ylabel("tokens/s over 64 times one target (simulated)")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    typer.run(main)
