"""Table 5: what a wider window gives: steps, groups of equal length, speed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.paper.decoding import Decoded
from benchmarks.paper.records import Row
from benchmarks.paper.sweep import Cell
from benchmarks.paper.throughput import median_ratio
from specdec_core.engine import AlgorithmName


def cells(
    algorithms: Sequence[AlgorithmName], batch_sizes: Sequence[int], ratios: Sequence[int]
) -> list[list[Cell]]:
    """All windows of an algorithm at one batch size are decoded in turns."""
    return [
        [Cell(algorithm, batch, ratio * batch) for ratio in ratios]
        for batch in batch_sizes
        for algorithm in algorithms
    ]


def figures(cell: Cell, done: Mapping[Cell, Sequence[Decoded]]) -> Row:
    """Relative to the narrowest window of the same algorithm."""
    runs = done[cell]
    stats = runs[0].stats
    return {
        "num_rounds": stats.num_rounds,
        "equal_length_share": stats.num_equal_length_groups / max(stats.num_groups, 1),
        "over_narrowest": median_ratio(runs, next(iter(done.values()))),
        "tokens_per_second": statistics.median(run.tokens_per_second for run in runs),
        "mean_acceptance_length": stats.mean_acceptance_length,
    }
