"""Parts that the benchmarks' command lines share: lists, errors, results and progress."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from deployments.config.flags import comma_names
from specdec_core.errors import InvalidRequestError, SpecdecError

Report = Callable[[str, int], None]
"""Called with (what runs, turns finished); with 0 before it runs."""
StageReport = Callable[[str, int, int], None]
"""Called with (stage, done, total), as `stage_progress` yields it."""


def numbers(text: str) -> tuple[int, ...]:
    """Return the whole numbers in a text. Raises InvalidRequestError."""
    try:
        return tuple(map(int, comma_names(text)))
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is not a list of numbers") from error


def fractions(text: str) -> tuple[float, ...]:
    """Return the numbers in a text. Raises ValueError."""
    return tuple(map(float, comma_names(text)))


def known(what: str, options: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a list of these options. It raises InvalidRequestError for others."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = comma_names(text)
        unknown = [name for name in chosen if name not in options]
        if unknown or not chosen:
            told = repr(unknown[0]) if unknown else "at all"
            raise InvalidRequestError(f"no {what} {told}; known are: {', '.join(options)}")
        return chosen

    return parse


def write_json(found: Any, path: Path | None) -> None:
    """Write a whole file, or leave the one that was there. Does nothing without a path."""
    if path is not None:
        scratch = path.with_name(f".{path.name}.part")
        scratch.write_text(json.dumps(found, indent=1, default=str) + "\n")
        scratch.replace(path)


def command_line(about: str) -> typer.Typer:
    """Return an app for several commands, whose examples are Markdown."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )


@contextmanager
def errors_told() -> Iterator[None]:
    """End the command with the text of a SpecdecError, as SIGTERM does: no stopped process of a
    benchmark is left behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield
    except SpecdecError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


@contextmanager
def turn_progress(num_turns: int) -> Iterator[Report]:
    """Show one bar over all turns. Call the yielded function with (name, turns finished).

    The bar is drawn between turns only, so that this process takes no core from a measurement. A
    log gets a line for each turn instead.
    """
    columns = (TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, *times, console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=num_turns)

        def report(name: str, num_finished: int) -> None:
            bar.update(task, description=name, advance=num_finished, refresh=True)
            if num_finished == 0 and not console.is_terminal:
                console.print(name, markup=False, highlight=False)

        yield report
