"""Progress bars on stderr: stages of a download, requests of a run. stdout stays for results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def stage_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function to report (stage, done, total); every reported stage gets a bar."""
    columns = (TextColumn("{task.description:10}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        stages: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = progress.add_task(stage)
            progress.update(stages[stage], completed=done, total=total)

        yield report


@contextmanager
def request_progress(num_requests: int) -> Iterator[Callable[[int, float], None]]:
    """Show one bar over `num_requests`. Call the yielded function with (requests done, tokens per
    second)."""
    columns = (
        TextColumn("requests"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens_per_second]:.0f} tokens/s"),
    )
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=num_requests, tokens_per_second=0.0)

        def report(num_done: int, tokens_per_second: float) -> None:
            bar.update(task, completed=num_done, tokens_per_second=tokens_per_second)

        yield report


@contextmanager
def cell_progress(num_answers: int) -> Iterator[Callable[[str, int], None]]:
    """Show one bar over all answers of an audit. Call the yielded function with (name, answers
    finished)."""
    columns = (TextColumn("{task.description:45}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=num_answers)

        def report(name: str, num_finished: int) -> None:
            bar.update(task, description=name, advance=num_finished)

        yield report


@contextmanager
def waiting_line() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of the thing that the program waits for.

    In a terminal it updates one line with the seconds so far. Otherwise it prints a line whenever
    the name changes.
    """
    console = Console(stderr=True, highlight=False)
    began_s = time.monotonic()
    last = ""

    def line(text: str) -> str:
        return f"{time.monotonic() - began_s:3.0f} s  {text}"

    def write(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            console.print(line(text), markup=False, soft_wrap=True)

    if not console.is_terminal:
        yield write
        return
    with console.status("") as status:
        yield lambda text: status.update(escape(line(text)))


def hide_bars() -> None:
    """Let the libraries that load and save models draw no progress bars of their own."""
    os.environ.setdefault("TQDM_DISABLE", "1")
