"""Figures of measured cells: milliseconds a round by part, as a table, JSON and a plot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.host_time.one_process import Half, Measured
from benchmarks.host_time.parts import PARTS, SCRIPT, WAITING

NOTE = "Passes of the device are modelled: no figure is a measurement of a GPU."
TOLERANCE = 0.05
"""Share by which the parts may miss the measured whole."""
_UNSEEN_MS = 0.02
"""CPU time of a round that no part has: reading the clocks, and the calls that wait."""
_COLOURS = [f"C{place}" for place in range(10)] + ["navy", "gold", "black"]
_WAKING = "waking up"
"""Part of the critical path in which the host still waits for a pass that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One cell, in milliseconds a round. Times are those of a host slower by the factor."""

    cell: str
    rows: int
    round_ms: float
    """Time of a round that is not clocked by part."""
    device_ms: float
    """Time of a round in which the device is busy."""
    critical_ms: float
    """Time of a round from the end of a pass to the launch of the next: the sum of `critical`."""
    critical: Mapping[str, float]
    cpu_ms: float
    """CPU time of a round that is not clocked."""
    busy: Mapping[str, float]
    """Time the host works in a round, by part, whether or not the device is busy."""
    tokens_per_s: float
    tokens_per_row: float
    """Tokens that a row gains in a round."""
    mean_k: float
    """Drafted tokens of a row in a round with a proposal."""
    num_rounds: int
    all_rounds: float
    """Rounds of a whole run, prompts included."""
    parts_over_round: float
    """Device and critical path over the measured time of the same rounds."""
    parts_over_cpu: float
    """Busy time over the process's CPU time in the same rounds."""
    clocked_over_unclocked: float
    """Time of a round that is clocked by part over that of one that is not."""
    functions: Mapping[str, float]
    """CPU time of the product's functions in a round. Empty if no profile was made."""

    @property
    def adds_up(self) -> bool:
        """Whether device and critical path miss the round by at most 5 %."""
        return abs(self.parts_over_round - 1.0) <= TOLERANCE

    @property
    def cpu_adds_up(self) -> bool:
        """Whether the busy parts miss the CPU time by at most 5 %. In real time they are longer by
        what other processes took of the core, and shorter by what waits cost."""
        unseen_ms = self.cpu_ms * abs(self.parts_over_cpu - 1.0)
        return unseen_ms <= TOLERANCE * self.cpu_ms + _UNSEEN_MS


def figures_of(measured: Measured, factor: float = 1.0) -> Figures:
    """Return the figures of a cell, whose device was `factor` times as fast as the real one."""
    runs = measured.runs
    unclocked, clocked = (
        _together([getattr(run, half) for run in runs]) for half in ("unclocked", "clocked")
    )
    in_ms = 1e3 * factor
    per_round = in_ms / clocked.num_rounds
    busy = _by_part([run.split.busy for run in runs], per_round)
    critical = _by_part([run.split.critical for run in runs], per_round)
    critical[_WAKING] = critical.pop(WAITING, 0.0)
    busy.pop(WAITING, None)
    device_ms = sum(run.split.device for run in runs) * per_round
    round_ms = unclocked.seconds * in_ms / unclocked.num_rounds
    cpu_ms = unclocked.cpu_s * in_ms / unclocked.num_rounds
    num_rounds = clocked.num_rounds + unclocked.num_rounds
    tokens_per_row = sum(run.num_tokens for run in runs) / num_rounds / measured.cell.rows
    num_proposed = sum(run.num_proposed for run in runs)
    return Figures(
        cell=measured.cell.name,
        rows=measured.cell.rows,
        round_ms=round_ms,
        device_ms=device_ms,
        critical_ms=sum(critical.values()),
        critical=critical,
        cpu_ms=cpu_ms,
        busy=busy,
        tokens_per_s=1e3 * tokens_per_row * measured.cell.rows / round_ms,
        tokens_per_row=tokens_per_row,
        mean_k=sum(run.num_drafted for run in runs) / max(num_proposed, 1),
        num_rounds=num_rounds,
        all_rounds=sum(run.num_all_rounds for run in runs) / len(runs),
        parts_over_round=(device_ms + sum(critical.values())) / (clocked.seconds * per_round),
        parts_over_cpu=sum(busy.values()) / (clocked.cpu_s * per_round),
        clocked_over_unclocked=clocked.seconds * per_round / round_ms,
        functions={
            name: share * (cpu_ms - busy.get(SCRIPT, 0.0))
            for name, share in measured.functions.items()
        },
    )


def _together(halves: Sequence[Half]) -> Half:
    return Half(
        num_rounds=sum(half.num_rounds for half in halves),
        seconds=sum(half.seconds for half in halves),
        cpu_s=sum(half.cpu_s for half in halves),
    )


def _by_part(splits: Sequence[Mapping[str, float]], scale: float) -> dict[str, float]:
    """Return the sums by part, in the order of PARTS."""
    total: Counter[str] = Counter()
    for one in splits:
        total.update(one)
    return {part: total[part] * scale for part in PARTS if part in total}


def table(figures: Sequence[Figures]) -> str:
    """Return one line for each cell, then its parts."""
    lines = [
        NOTE,
        "",
        f"{'cell':<18}{'round':>8}{'device':>8}{'critical':>9}{'CPU':>8}"
        f"{'tokens/s':>10}{'K':>6}{'parts/round':>13}{'parts/CPU':>11}{'clocked':>9}",
    ]
    for one in figures:
        lines.append(
            f"{one.cell:<18}{one.round_ms:>8.2f}{one.device_ms:>8.2f}{one.critical_ms:>9.2f}"
            f"{one.cpu_ms:>8.2f}{one.tokens_per_s:>10.0f}{one.mean_k:>6.2f}"
            f"{one.parts_over_round:>13.3f}{one.parts_over_cpu:>11.3f}"
            f"{one.clocked_over_unclocked:>9.3f}"
            f"{'' if one.adds_up else '  the parts miss the round'}"
            f"{'' if one.cpu_adds_up else '  the parts miss the CPU time'}"
        )
    for title, name in (("critical path", "critical"), ("CPU", "busy")):
        lines += ["", *_part_table(f"{title}, ms a round", figures, name)]
    return "\n".join(lines)


def _part_table(title: str, figures: Sequence[Figures], name: str) -> list[str]:
    known: dict[str, dict[str, float]] = {one.cell: getattr(one, name) for one in figures}
    parts = [part for part in (*PARTS, _WAKING) if any(part in own for own in known.values())]
    widths = [max(len(part) + 2, 8) for part in parts]
    head = "".join(f"{part:>{width}}" for part, width in zip(parts, widths, strict=True))
    lines = [f"{title:<22}{head}"]
    for cell, own in known.items():
        numbers = (
            f"{own[part]:>{width}.3f}" if part in own else " " * width
            for part, width in zip(parts, widths, strict=True)
        )
        lines.append(f"{cell:<22}{''.join(numbers)}")
    return lines


def as_json(figures: Sequence[Figures], context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result file contains."""
    cells = [
        {**asdict(one), "adds_up": one.adds_up, "cpu_adds_up": one.cpu_adds_up} for one in figures
    ]
    return {"note": NOTE, **context, "cells": cells}


def plot(figures: Sequence[Figures], path: Path) -> bool:
    """Draw critical path and CPU time of each cell by part; False if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(12, 1.5 + 0.35 * len(figures)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, title, name in zip(axes, ("critical path", "CPU"), ("critical", "busy"), strict=True):
        shown = {one.cell: getattr(one, name) for one in figures}
        draw_stacked(axis, shown, (*PARTS, _WAKING), f"{title}, ms a round")
    axes[0].invert_yaxis()
    figure.suptitle(NOTE, fontsize="small")
    figure.savefig(path)
    return True


def draw_stacked(
    axis: Any, known: Mapping[str, Mapping[Any, float]], parts: Iterable[str], label: str
) -> None:
    """Draw the parts of each cell side by side; a part has the same colour in every plot. Parts
    below 0 are left out."""
    left = [0.0] * len(known)
    for colour, part in zip(itertools.cycle(_COLOURS), parts):
        widths = [max(own.get(part, 0.0), 0.0) for own in known.values()]
        if any(widths):
            axis.barh(list(known), widths, left=left, label=part, color=colour)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlabel(label)
    axis.legend(fontsize="small")
