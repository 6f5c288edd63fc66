"""Flags that only `specdec verify` has: comma-separated lists of values to combine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from deployments.cli.verify.cells import ALGORITHMS, Cells
from specdec_core.speculation.registry import drafting_methods

Value = TypeVar("Value")

DEFAULT_ALGORITHMS = ",".join(ALGORITHMS)
DEFAULT_CELLS = Cells.RANDOM
DEFAULT_DRAFT = "self:1"


def _list_of(parse: Callable[[str], Value]) -> Callable[[Any], tuple[Value, ...]]:
    """Return a callback that turns "1,4,8" into the values, without repetitions."""

    def callback(text: str) -> tuple[Value, ...]:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise typer.BadParameter("at least one value is needed")
        return tuple(dict.fromkeys(_parsed(parse, part) for part in parts))

    return callback


def _parsed(parse: Callable[[str], Value], part: str) -> Value:
    try:
        return parse(part)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of at least 1")
    return int(text)


positive_numbers = _list_of(_positive)


def _temperature(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error


def _algorithm(text: str) -> str:
    if text not in ALGORITHMS:
        raise ValueError(f"{text!r} is none of {', '.join(ALGORITHMS)}")
    return text


def _method(text: str) -> str:
    known = drafting_methods()
    if text not in known:
        raise ValueError(f"{text!r} is none of {', '.join(known)}")
    return text


_PANEL = "Cells"

Algorithms = Annotated[
    str,
    typer.Option(
        "--algorithms",
        "--algorithm",
        callback=_list_of(_algorithm),
        help="What is compared.",
        rich_help_panel=_PANEL,
    ),
]
BatchSizes = Annotated[
    str,
    typer.Option(
        "--batch-sizes",
        "--batch-size",
        "--max-num-seqs",
        callback=positive_numbers,
        help="Most sequences per target pass.",
        rich_help_panel=_PANEL,
    ),
]
SpecTokens = Annotated[
    str,
    typer.Option(
        callback=positive_numbers,
        help="Drafted tokens per sequence and round (K), separated by commas.",
        rich_help_panel=_PANEL,
    ),
]
SpecMethods = Annotated[
    str,
    typer.Option(
        "--spec-methods",
        "--spec-method",
        callback=_list_of(_method),
        help=f"Who drafts: {', '.join(drafting_methods())}.",
        rich_help_panel=_PANEL,
    ),
]
Temperatures = Annotated[
    str,
    typer.Option(
        "--temperatures",
        "--temperature",
        callback=_list_of(_temperature),
        help="0 is greedy. A line of the file may name its own.",
        rich_help_panel=_PANEL,
    ),
]
HowCells = Annotated[
    Cells,
    typer.Option(
        help="random: each prompt in one cell drawn for it, and some prompts in every cell. "
        "all: every prompt in every cell.",
        rich_help_panel=_PANEL,
    ),
]
CellSeed = Annotated[int, typer.Option(help="Of the drawn cells.", rich_help_panel=_PANEL)]
GridSample = Annotated[
    int,
    typer.Option(
        min=0,
        help="Prompts in every cell; a batch that they leave room in is filled with others.",
        rich_help_panel=_PANEL,
    ),
]
CompareFast = Annotated[
    bool,
    typer.Option(
        "--compare-fast",
        help="Run every cell in fast numerics too and show its figures beside.",
        rich_help_panel=_PANEL,
    ),
]
SpecModel = Annotated[
    str,
    typer.Option(
        metavar="PATH_OR_ID",
        help="Draft model. self:N is the target without N of its layers, often wrong and as slow; "
        "self is always right.",
        rich_help_panel="Speculation",
    ),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=20,
        help="Compare the log-probabilities of the tokens and of so many likeliest ids too.",
        rich_help_panel="Sampling",
    ),
]
