"""Table 3: emitted tokens per second, relative to plain decoding at the same batch size."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.paper.algorithms import PLAIN
from benchmarks.paper.decoding import Decoded
from benchmarks.paper.records import Row
from benchmarks.paper.sweep import Cell


def figures(cell: Cell, done: Mapping[Cell, Sequence[Decoded]]) -> Row:
    plain = done[Cell(PLAIN, cell.batch_size)]
    runs = done[cell]
    return {
        "tokens_per_second": statistics.median(run.tokens_per_second for run in runs),
        "over_plain": median_ratio(runs, plain),
        "num_rounds": runs[0].stats.num_rounds,
        "num_tokens": runs[0].num_tokens,
        "mean_acceptance_length": runs[0].stats.mean_acceptance_length,
    }


def median_ratio(runs: Sequence[Decoded], others: Sequence[Decoded]) -> float:
    """Of the speeds of runs that were made in the same turn."""
    pairs = zip(runs, others, strict=True)
    return statistics.median(a.tokens_per_second / b.tokens_per_second for a, b in pairs)
