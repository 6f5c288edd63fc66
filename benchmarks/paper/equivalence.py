"""Table 1: outputs that equal plain decoding, one sequence at a time, id for id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.paper.decoding import Decoded
from benchmarks.paper.records import Row
from benchmarks.paper.sweep import Cell

Ids = Sequence[int]


class Comparison:
    """Against a reference: how many answers are equal, and how far the others agree."""

    def __init__(self, reference: Decoded) -> None:
        self._reference = reference.answers

    def figures(self, cell: Cell, done: Mapping[Cell, Sequence[Decoded]]) -> Row:
        decoded = done[cell][0]
        pairs = list(zip(self._reference, decoded.answers, strict=True))
        return {
            "num_requests": len(pairs),
            "num_equal": sum(expected == got for expected, got in pairs),
            "partial_match": sum(partial_match(*each) for each in pairs) / len(pairs),
            "mean_acceptance_length": decoded.stats.mean_acceptance_length,
            "num_accepted": decoded.stats.num_accepted,
            "num_tokens": decoded.num_tokens,
        }


def partial_match(expected: Ids, got: Ids) -> float:
    """Share of the expected ids before the first difference, as the paper counts it."""
    if expected == got:
        return 1.0
    same = 0
    for a, b in zip(expected, got, strict=False):
        if a != b:
            break
        same += 1
    return same / len(expected) if expected else 0.0
