"""What is measured: every engine with every method, draft, K and batch size that it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.harness.commands import numbers
from benchmarks.peers.engines import DRAFT_MODEL, HYBRID, METHODS, PLAIN, EngineSpec
from deployments.config.flags import comma_names, flag


class Cell(NamedTuple):
    """One line of the table."""

    engine: str
    method: str
    draft: str | None
    spec_tokens: int
    batch_size: int

    @property
    def name(self) -> str:
        draft = f" {self.draft}" if self.draft else ""
        k = "" if self.method == PLAIN else f" K={self.spec_tokens}"
        return f"{self.engine} {self.method}{draft}{k} B={self.batch_size}"


class Seat(NamedTuple):
    """One process: an engine, and what it settles when it loads (None and 0 where it does not)."""

    engine: str
    method: str | None
    draft: str | None
    spec_tokens: int

    @property
    def name(self) -> str:
        settled = [part for part in (self.method, self.draft) if part]
        k = [f"k{self.spec_tokens}"] if self.spec_tokens else []
        return "-".join([self.engine, *settled, *k])


class NotRun(NamedTuple):
    """Nothing is left out without a reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What every engine is measured with. Lists are separated by commas."""

    methods: tuple[str, ...] = flag(",".join(METHODS), "Methods of drafting.", parse=comma_names)
    drafts: tuple[str, ...] = flag(
        "smollm2-135m-draft",
        "Draft models; `self` is the target as its own draft.",
        parse=comma_names,
    )
    spec_tokens: tuple[int, ...] = flag("4", "Drafted tokens per round (K).", parse=numbers)
    batch_sizes: tuple[int, ...] = flag("1,8", "Sequences at a time.", parse=numbers)
    temperature: float = flag(0.0, "0 is greedy.")


def cells_of(specs: Iterable[EngineSpec], axes: Axes) -> tuple[list[Cell], list[NotRun]]:
    """Every cell that the engines have, and what they have not."""
    cells: list[Cell] = []
    not_run: list[NotRun] = []
    for spec in specs:
        for method in (name for name in axes.methods if name in spec.methods):
            for cell in _with_method(spec, method, axes):
                reason = _missing(spec, cell, axes.temperature)
                if reason is None:
                    cells.append(cell)
                else:
                    not_run.append(NotRun(cell.name, reason))
    return sorted(cells, key=lambda cell: axes.batch_sizes.index(cell.batch_size)), not_run


def _with_method(spec: EngineSpec, method: str, axes: Axes) -> Iterator[Cell]:
    drafts: Sequence[str | None] = axes.drafts if method in (DRAFT_MODEL, HYBRID) else (None,)
    for batch_size in axes.batch_sizes:
        for draft in drafts:
            for k in (0,) if method == PLAIN else axes.spec_tokens:
                yield Cell(spec.name, method, draft, k, batch_size)


def _missing(spec: EngineSpec, cell: Cell, temperature: float) -> str | None:
    if cell.batch_size > spec.methods[cell.method]:
        return f"{spec.name} has it up to batch {spec.methods[cell.method]}"
    if temperature > 0 and not spec.samples:
        return f"{spec.name} decodes greedily only"
    return None


def seat_of(cell: Cell, spec: EngineSpec) -> Seat:
    if not spec.loads_per_method:
        return Seat(cell.engine, None, None, 0)
    return Seat(cell.engine, cell.method, cell.draft, cell.spec_tokens)
