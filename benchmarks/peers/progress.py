"""The bar of a comparison. It is drawn between turns only: while a runner is measured, this process
takes no core from it. A log gets a line for each instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.peers.rounds import Report


@contextmanager
def turn_progress(num_turns: int) -> Iterator[Report]:
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
