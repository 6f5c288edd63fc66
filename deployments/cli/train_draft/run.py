"""`specdec train-draft`: load the target, train a draft for it, print the draft's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

from deployments.cli.train_draft.chat import template_chat
from deployments.cli.train_draft.job import draft_job, load_config
from deployments.cli.train_draft.options import TrainDraftOptions
from deployments.demo.models import resolve_model
from specdec_core.loading.loader import load_model
from specdec_core.training.distillation import make_draft
from specdec_core.training.draft_folder import write_compact
from specdec_core.training.target_files import open_target
from specdec_core.training.trainer import Progress as Trained


def run(options: TrainDraftOptions) -> None:
    """Train the draft, then print the results and, last, the folder."""
    job = draft_job(options)
    text = options.loading.load_text(options.target)
    chat = template_chat(text)
    path = resolve_model(options.target)
    files = open_target(path, options.loading.revision)
    target = load_model(path, load_config(options, text))
    with _reporter() as reporter:
        result = make_draft(job, target, files, chat, reporter)
    if options.compact is not None:
        write_compact(options.output, files, options.compact)
    print(_summary(result))
    print(options.output)


def _summary(result: Trained) -> str:
    held_out = result.held_out
    assert held_out is not None
    return (
        f"held-out text: {held_out.greedy:.1%} of greedy choices are the target's, "
        f"{held_out.length:.2f} tokens per round at K = 4; "
        f"at temperature 1 at least {held_out.coupled:.1%} are accepted"
    )


class _Bars:
    """Reports with progress bars: one for the text, one for the training."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._text = progress.add_task("text", total=None, note="documents")
        self._training = progress.add_task("training", total=None, note="", start=False)

    def text(self, done: int, total: int) -> None:
        self._progress.update(self._text, completed=done, total=total)

    def training(self, progress: Trained) -> None:
        self._progress.start_task(self._training)
        self._progress.update(
            self._training, completed=progress.step, total=progress.num_steps, note=_note(progress)
        )


class _Lines:
    """Reports to a log, without a terminal: one line for every twentieth of a stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ("", 0)

    def text(self, done: int, total: int) -> None:
        self._say("text", done, total, "documents")

    def training(self, progress: Trained) -> None:
        self._say("training", progress.step, progress.num_steps, _note(progress))

    def _say(self, stage: str, done: int, total: int, note: str) -> None:
        place = (stage, _LINES_PER_STAGE * done // total)
        if place != self._said:
            self._said = place
            self._console.print(f"{stage} {done}/{total} {note}", soft_wrap=True)


_LINES_PER_STAGE = 20


def _note(progress: Trained) -> str:
    note = f"loss {progress.loss:.4f}"
    if progress.held_out is not None:
        note += f"  held out {progress.held_out.greedy:.1%}, {progress.held_out.length:.2f} a round"
    return note


@contextmanager
def _reporter() -> Iterator[_Bars | _Lines]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Remaining(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress)
