"""The picture: tokens per second by cell, a panel for each batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.report import OURS


def plot(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    sizes = list(dict.fromkeys(record["batch_size"] for record in records))
    rows = [[record for record in records if record["batch_size"] == size] for size in sizes]
    figure = Figure(figsize=(9, 1.5 + 0.32 * len(records)), layout="constrained")
    panels = figure.subplots(
        len(sizes), 1, squeeze=False, height_ratios=[len(members) for members in rows]
    )
    for (axes,), size, members in zip(panels, sizes, rows, strict=True):
        _bars(axes, members)
        axes.set_title(f"batch {size}")
    panels[-1][0].set_xlabel("tokens/s: median, slowest and fastest round")
    figure.savefig(path, dpi=120)


def _bars(axes: Any, records: Sequence[Mapping[str, Any]]) -> None:
    medians = [record["tokens_per_second"] for record in records]
    runs = [[run["tokens_per_second"] for run in record["runs"]] for record in records]
    low = [middle - min(speeds) for middle, speeds in zip(medians, runs, strict=True)]
    high = [max(speeds) - middle for middle, speeds in zip(medians, runs, strict=True)]
    colours = ["tab:blue" if record["engine"] == OURS else "tab:grey" for record in records]
    axes.barh(range(len(records)), medians, xerr=[low, high], capsize=3, color=colours)
    axes.set_yticks(range(len(records)), [record["name"] for record in records])
    axes.invert_yaxis()
