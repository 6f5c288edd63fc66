"""The medians of a run, and whether they keep what was promised."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.neighbours.gaps import Trial

HARMLESS, PLAIN_CROWD, SCHEMA_CROWD = "harmless", "32 requests", "32 requests of one schema"
MAX_OVER_HARMLESS_MS = 100.0
MAX_OVER_CROWD_MS = 20.0

Trials = Mapping[str, Sequence[Trial]]
"""Trials by the name of the input next to the neighbour, one for each turn."""


def median_ms(trials: Sequence[Trial]) -> float:
    return statistics.median(trial.longest_gap_ms for trial in trials)


def over_ms(trials: Trials, name: str) -> float | None:
    """How much longer the median gap is than that of what `name` is compared with, if any."""
    base = PLAIN_CROWD if name == SCHEMA_CROWD else HARMLESS
    if name in (HARMLESS, PLAIN_CROWD) or base not in trials:
        return None
    return median_ms(trials[name]) - median_ms(trials[base])


def broken_promises(trials: Trials) -> list[str]:
    broken = []
    for name in trials:
        over = over_ms(trials, name)
        limit = MAX_OVER_CROWD_MS if name == SCHEMA_CROWD else MAX_OVER_HARMLESS_MS
        if over is not None and over > limit:
            broken.append(f"{name}: {over:.0f} ms longer, the limit is {limit:.0f} ms")
    return broken


def record(trials: Trials) -> dict[str, Any]:
    return {
        name: {
            "median_longest_gap_ms": round(median_ms(some), 1),
            "over_ms": None if (over := over_ms(trials, name)) is None else round(over, 1),
            "trials": [asdict(trial) for trial in some],
        }
        for name, some in trials.items()
    }


def table(trials: Trials) -> Table:
    shown = Table("beside", "longest gap, ms", "over its twin, ms", "answers")
    for name, some in trials.items():
        over = over_ms(trials, name)
        statuses = " ".join(sorted({status for trial in some for status in trial.statuses}))
        shown.add_row(
            name, f"{median_ms(some):.0f}", "" if over is None else f"{over:+.0f}", statuses
        )
    return shown
