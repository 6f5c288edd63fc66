"""The picture: tokens per second by cell, a panel for each batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.report import OURS
from deployments.cli.bench.offline_plot import draw_bars
from deployments.cli.plotting import picture


def plot(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    sizes = list(dict.fromkeys(record["batch_size"] for record in records))
    rows = [[record for record in records if record["batch_size"] == size] for size in sizes]
    with picture(path, 9, 1.5 + 0.32 * len(records)) as figure:
        panels = figure.subplots(
            len(sizes), 1, squeeze=False, height_ratios=[len(members) for members in rows]
        )
        for (axes,), size, members in zip(panels, sizes, rows, strict=True):
            colours = ["tab:blue" if member["engine"] == OURS else "tab:grey" for member in members]
            draw_bars(axes, members, colours)
            axes.set_title(f"batch {size}")
        panels[-1][0].set_xlabel("tokens/s: median, slowest and fastest round")
