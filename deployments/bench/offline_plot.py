"""The picture of an offline measurement: tokens per second by cell, with the spread of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.4 * len(records)), layout="constrained")
    axes = figure.subplots()
    places = range(len(records))
    medians = [record["tokens_per_second"] for record in records]
    runs = [[run["tokens_per_second"] for run in record["runs"]] for record in records]
    low = [middle - min(speeds) for middle, speeds in zip(medians, runs, strict=True)]
    high = [max(speeds) - middle for middle, speeds in zip(medians, runs, strict=True)]
    axes.barh(places, medians, xerr=[low, high], capsize=3, color="tab:blue", alpha=0.8)
    axes.set_yticks(places, [record["name"] for record in records])
    axes.invert_yaxis()
    axes.set(xlabel="tokens/s: median, fastest and slowest run")
    figure.savefig(path, dpi=120)
