"""Choose the cells of an audit and their prompts: pure functions of the flags and a seed.

A point is (draft, K, B, T). A cell is a point decoded by one algorithm. Every algorithm gets the
same points with the same prompts, so that their rows can be compared.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

from deployments.cli.parsers import comma_list, methods, number, one_of, positive
from deployments.config.flags import flag
from specdec_core.config import SpecMethod
from specdec_core.speculation.registry import drafting_methods

PLAIN = "autoregressive"
PADDED = ("eqspec", "exspec-padded")
"""Algorithms that run over the left-padded cache."""
ALGORITHMS = (PLAIN, *PADDED, "exspec")


class Cells(StrEnum):
    """Assignment of prompts to cells."""

    RANDOM = "random"
    """Each prompt in one cell drawn for it, and some prompts in every cell."""
    ALL = "all"
    """Every prompt in every cell."""


class Point(NamedTuple):
    method: str
    num_draft_tokens: int
    batch_size: int
    temperature: float


class Cell(NamedTuple):
    algorithm: str
    point: Point

    @property
    def name(self) -> str:
        method, k, batch_size, temperature = self.point
        draft = f" {method} K={k}" if self.is_speculative else ""
        return f"{self.algorithm}{draft} B={batch_size} T={temperature:g}"

    @property
    def is_speculative(self) -> bool:
        return self.algorithm != PLAIN


class Task(NamedTuple):
    """A cell and the prompts that it decodes, by index."""

    cell: Cell
    prompts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The axes of an audit."""

    PANEL: ClassVar[str] = "Cells"

    algorithms: tuple[str, ...] = flag(
        ",".join(ALGORITHMS),
        "Algorithms to compare.",
        "--algorithms",
        "--algorithm",
        parse=comma_list(one_of(ALGORITHMS, str)),
    )
    batch_sizes: tuple[int, ...] = flag(
        "1,4,8",
        "Maximum sequences per target pass (the batch).",
        "--batch-sizes",
        "--batch-size",
        "--max-num-seqs",
        parse=comma_list(positive),
    )
    spec_tokens: tuple[int, ...] = flag(
        "1,4,15",
        "Drafted tokens per sequence and round (K), separated by commas.",
        parse=comma_list(positive),
    )
    spec_methods: tuple[str, ...] = flag(
        "ngram,draft_model",
        f"Methods to compare: {', '.join(drafting_methods())}.",
        "--spec-methods",
        "--spec-method",
        parse=methods,
    )
    temperatures: tuple[float, ...] = flag(
        "0,0.8",
        "Sampling temperatures. 0 is greedy. A line of the file may set its own.",
        "--temperatures",
        "--temperature",
        parse=comma_list(number),
    )

    def points(self, algorithm: str) -> list[Point]:
        """Return the points. Plain decoding has no draft; at batch size 1 it is the reference
        itself."""
        if algorithm == PLAIN:
            axes = itertools.product(self.temperatures, self.batch_sizes)
            return [Point(SpecMethod.NONE, 0, batch, t) for t, batch in axes if batch > 1]
        return [
            Point(method, k, batch, temperature)
            for temperature, method, k, batch in itertools.product(
                self.temperatures, self.spec_methods, self.spec_tokens, self.batch_sizes
            )
        ]


def plan(
    grid: Grid, num_prompts: int, *, cells: Cells, num_in_every_cell: int, seed: int
) -> list[Task]:
    """Return every task of an audit, algorithm by algorithm."""
    return [
        Task(Cell(algorithm, point), prompts)
        for algorithm in grid.algorithms
        for point, prompts in _plan_points(
            grid.points(algorithm),
            num_prompts,
            num_prompts if cells is Cells.ALL else num_in_every_cell,
            random.Random(seed),
        )
    ]


def _plan_points(
    points: Sequence[Point], num_prompts: int, num_in_every_cell: int, rng: random.Random
) -> Iterator[tuple[Point, tuple[int, ...]]]:
    chosen = {point: _spread(point, num_prompts, num_in_every_cell) for point in points}
    if points and num_in_every_cell < num_prompts:
        for point, prompts in _draw(points, num_prompts, rng):
            chosen[point] |= prompts
    return ((point, tuple(sorted(prompts))) for point, prompts in chosen.items() if prompts)


def _spread(point: Point, num_prompts: int, num_wanted: int) -> set[int]:
    """Return `num_wanted` prompts, spread evenly over all of them. Take more if a batch would not
    be full."""
    if num_wanted == 0:
        return set()
    count = min(max(num_wanted, point.batch_size), num_prompts)
    return {index * num_prompts // count for index in range(count)}


def _draw(
    points: Sequence[Point], num_prompts: int, rng: random.Random
) -> Iterator[tuple[Point, set[int]]]:
    """Deal every prompt to a point drawn for it.

    A drawn point takes one and a half batches, so that its batch is full and refills once. If too
    few prompts are left for a batch, earlier prompts fill it up. No point is drawn twice before
    each was drawn once.
    """
    prompts = rng.sample(range(num_prompts), num_prompts)
    dealt = 0
    while True:
        for point in rng.sample(points, len(points)):
            if dealt >= num_prompts:
                return
            taken = prompts[dealt : dealt + point.batch_size + (point.batch_size + 1) // 2]
            num_missing = max(point.batch_size - len(taken), 0)
            yield point, {*taken, *prompts[:dealt][:num_missing]}
            dealt += len(taken)
