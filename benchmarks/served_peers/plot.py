"""The picture: tokens per second, a group of bars for each number of streams, a bar an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.served_peers.engines import ENGINE, SPECDEC
from benchmarks.served_peers.figures import Cells, rate
from benchmarks.served_peers.readings import Record
from deployments.cli.plotting import picture

_GROUP_WIDTH = 0.84
_OURS = {SPECDEC: "tab:blue", ENGINE: "lightsteelblue"}
_THEIRS = ("tab:orange", "navajowhite", "dimgrey", "darkgrey", "lightgrey", "tab:olive", "khaki")


def plot(found: dict[str, Any], path: Path) -> None:
    cells = Cells(found["readings"])
    kinds = list(dict.fromkeys(prompts for prompts, _ in cells.shapes))
    with picture(path, 11, 1 + 3.6 * len(kinds)) as figure:
        panels = figure.subplots(len(kinds), 1, squeeze=False)
        for (axes,), prompts in zip(panels, kinds, strict=True):
            streams = [number for kind, number in cells.shapes if kind == prompts]
            _bars(axes, cells, prompts, streams)
            tokens = found["settings"]["prompt_tokens"].get(prompts, 0)
            axes.set_title(f"{prompts} prompts: {tokens:.0f} tokens")
            axes.set_ylabel("tokens/s")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5))
        figure.suptitle(f"{found['settings']['site']['model']} on {found['machine']['cpu']}")


def _bars(axes: Any, cells: Cells, prompts: str, streams: Sequence[int]) -> None:
    width = _GROUP_WIDTH / len(cells.engines)
    others = iter(_THEIRS)
    for place, engine in enumerate(cells.engines):
        shift = (place + 0.5) * width - _GROUP_WIDTH / 2
        own = [cells.of(engine, prompts, number) for number in streams]
        middles = [cells.middle(engine, prompts, number, rate) or 0.0 for number in streams]
        drawn = axes.bar(
            [group + shift for group in range(len(streams))],
            middles,
            width,
            yerr=_spread(own, middles),
            capsize=2,
            label="plain engine, no service" if engine == ENGINE else engine,
            color=_OURS.get(engine) or next(others, "black"),
        )
        axes.bar_label(drawn, fmt="%.0f", fontsize=7, padding=2)
    axes.set_xticks(range(len(streams)), [f"{n} stream{'s' if n > 1 else ''}" for n in streams])
    axes.margins(y=0.12)


def _spread(own: Sequence[Sequence[Record]], middles: Sequence[float]) -> list[list[float]]:
    """From the slowest round to the fastest."""
    low, high = [], []
    for readings, middle in zip(own, middles, strict=True):
        speeds = [rate(each) for each in readings] or [middle]
        low.append(middle - min(speeds))
        high.append(max(speeds) - middle)
    return [low, high]
