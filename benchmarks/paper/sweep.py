"""Cells of a table decoded in turns, within a budget of time; cells that do not run say why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.paper.decoding import Decoded, in_turns
from benchmarks.paper.pairs import Pair
from benchmarks.paper.records import Row
from specdec_core.engine import AlgorithmName
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError


class Cell(NamedTuple):
    algorithm: AlgorithmName
    batch_size: int
    window: int | None = None
    """None: the paper's ratio to the batch size."""

    @property
    def coordinates(self) -> Row:
        place: Row = {"algorithm": self.algorithm.value, "batch_size": self.batch_size}
        return place if self.window is None else {**place, "window": self.window}


def cells_by_batch(
    algorithms: Sequence[AlgorithmName], batch_sizes: Sequence[int]
) -> list[list[Cell]]:
    """All algorithms at one batch size are decoded in turns."""
    return [[Cell(algorithm, batch) for algorithm in algorithms] for batch in batch_sizes]


Figures = Callable[[Cell, Mapping[Cell, Sequence[Decoded]]], Row]
"""The figures of a cell from all repeats of all cells that were decoded in turns with it."""

Report = Callable[[str], None]
"""Called with what has just been decoded."""


class Budget:
    """Seconds after which no further cells are begun."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._ends_at = clock() + seconds

    @property
    def is_spent(self) -> bool:
        return self._clock() >= self._ends_at

    @property
    def reason(self) -> str:
        """Why what comes behind its end did not run."""
        return f"the budget of {self.seconds:g} s was spent"


def sweep(
    pair: Pair,
    groups: Sequence[Sequence[Cell]],
    figures: Figures,
    *,
    repeats: int,
    budget: Budget,
    report: Report,
) -> Iterator[Row]:
    """The rows of all cells; those of a group are decoded in turns, after one turn of warm-up."""
    for group in groups:
        if budget.is_spent:
            yield from (not_run(cell, budget.reason) for cell in group)
        else:
            yield from _run_group(pair, group, figures, repeats, report)


def not_run(cell: Cell, reason: str) -> Row:
    return {**cell.coordinates, "not_run": reason}


def num_decodings(groups: Sequence[Sequence[Cell]], repeats: int) -> int:
    """How often `report` will be called at most."""
    return sum(len(group) for group in groups) * (repeats + (repeats > 1))


def _run_group(
    pair: Pair, group: Sequence[Cell], figures: Figures, repeats: int, report: Report
) -> list[Row]:
    refusals = {cell: reason for cell in group if (reason := refusal(pair, cell)) is not None}
    runs = {cell: partial(_run, pair, cell, report) for cell in group if cell not in refusals}
    if repeats > 1:
        in_turns(runs, 1)
    done = in_turns(runs, repeats)
    return [
        not_run(cell, refusals[cell])
        if cell in refusals
        else {**cell.coordinates, **figures(cell, done)}
        for cell in group
    ]


def _run(pair: Pair, cell: Cell, report: Report) -> Decoded:
    decoded = pair.decode(*cell)
    report(f"{cell.algorithm} B={cell.batch_size}" + (f" W={cell.window}" if cell.window else ""))
    return decoded


def refusal(pair: Pair, cell: Cell) -> str | None:
    """Why the engine does not offer this cell, if so."""
    try:
        pair.engine(*cell)
    except (InvalidRequestError, ModelNotSupportedError) as error:
        return str(error)
    return None
