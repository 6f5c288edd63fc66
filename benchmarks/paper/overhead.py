"""Table 2: where the time goes, and what realignment moves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.paper.decoding import Decoded
from benchmarks.paper.records import Row
from benchmarks.paper.sweep import Cell

STAGES = ("draft", "verify", "align", "stack", "view", "schedule")
"""stack: rows of equal length put side by side; view: rows read through their start offsets."""


def figures(cell: Cell, done: Mapping[Cell, Sequence[Decoded]]) -> Row:
    """Medians over the repeats; per round, so that algorithms of different rounds compare."""
    runs = done[cell]
    first = runs[0].stats
    shares = [alignment_share(run.stats.seconds) for run in runs]
    return {
        "num_rounds": first.num_rounds,
        "num_tokens": runs[0].num_tokens,
        "mean_acceptance_length": first.mean_acceptance_length,
        "ms_per_round": {
            stage: statistics.median(
                1000 * run.stats.seconds.get(stage, 0.0) / run.stats.num_rounds for run in runs
            )
            for stage in STAGES
        },
        "alignment_share": statistics.median(shares),
        "alignment_share_range": [min(shares), max(shares)],
        "aligned_bytes": first.aligned_bytes,
        "stacked_bytes": first.stacked_bytes,
    }


def alignment_share(seconds: Mapping[str, float]) -> float:
    """Of the time in all stages."""
    total = sum(seconds.values())
    return seconds.get("align", 0.0) / total if total else 0.0
