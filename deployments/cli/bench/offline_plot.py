"""Plot of an offline measurement: tokens per second by cell, with the spread of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deployments.cli.plotting import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    with picture(path, 9, 1.2 + 0.4 * len(records)) as figure:
        axes = figure.subplots()
        draw_bars(axes, records, "tab:blue")
        axes.set(xlabel="tokens/s: median, fastest and slowest run")


def draw_bars(
    axes: Axes, records: Sequence[Mapping[str, Any]], colour: str | Sequence[str]
) -> None:
    """Draw a bar for each record, the first one on top."""
    places = range(len(records))
    medians = [record["tokens_per_second"] for record in records]
    runs = [[run["tokens_per_second"] for run in record["runs"]] for record in records]
    low = [middle - min(speeds) for middle, speeds in zip(medians, runs, strict=True)]
    high = [max(speeds) - middle for middle, speeds in zip(medians, runs, strict=True)]
    axes.barh(places, medians, xerr=[low, high], capsize=3, color=colour)
    axes.set_yticks(places, [record["name"] for record in records])
    axes.invert_yaxis()
