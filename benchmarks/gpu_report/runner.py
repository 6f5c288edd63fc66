"""Runs steps, each in a process of its own, so that none takes another one with it.

A result that is there, of this environment, is kept. A step that ends badly or exceeds its limit
leaves what it had found until then.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.gpu_report.environment import environment
from benchmarks.gpu_report.results import Findings, Result, Status, StepSkippedError, load, path_of
from benchmarks.gpu_report.settings import Settings
from benchmarks.gpu_report.steps import Step

_PRELOADED = (
    "torch.profiler",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3_moe.modeling_qwen3_moe",
    "specdec_core.engine",
    "specdec_core.loading.loader",
)
"""What most steps import."""
_MAX_REASON = 300

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs steps in turn and says one line of each."""

    settings: Settings
    again: Collection[str] = ()
    """Names of steps whose results are not kept."""
    budget_s: float
    """No step is started that might end after so many seconds."""
    say: Say = print

    def run(self, steps: Sequence[Step]) -> None:
        started = time.monotonic()
        self.settings.output.mkdir(parents=True, exist_ok=True)
        for number, step in enumerate(steps, start=1):
            left_s = self.budget_s - (time.monotonic() - started)
            title = f"[{number:2}/{len(steps)}] {step.name:<10} {step.what}"
            self.say(f"{title}: {self._settle(step, left_s)}")

    def _settle(self, step: Step, left_s: float) -> str:
        """Run the step, if that is needed and there is time; returns what came of it."""
        known = load(path_of(self.settings.output, step.name))
        obstacle = self._obstacle(step, known)
        if known is not None and not obstacle:
            return f"{known.status} before, kept"
        note = f" ({obstacle}: run again)" if known is not None else ""
        if step.limit_s > left_s:
            return f"left for the next run: it may take {step.limit_s:.0f} s, {left_s:.0f} are left"
        result = self._run(step)
        reason = f": {result.reason}" if result.reason else ""
        took = f"{result.status} in {result.seconds:.1f} s of at most {step.limit_s:.0f}"
        return f"{took}{note}{reason}"

    def _obstacle(self, step: Step, known: Result | None) -> str:
        """Why the known result is of no use; empty where it is."""
        if known is None or known.status is Status.RUNNING:
            return "it was interrupted"
        if step.name in self.again:
            return "asked for"
        return mismatch(known, step, self.settings)

    def _run(self, step: Step) -> Result:
        path = path_of(self.settings.output, step.name)
        log = path.with_suffix(".log")
        asked = step.asked(self.settings)
        Result(step=step.name, limit_s=step.limit_s, environment=environment(), asked=asked).save(
            path
        )
        process = _context(self.settings.device).Process(  # type: ignore[attr-defined]
            target=run_in_child, args=(step, self.settings, path, log), name=step.name
        )
        started = time.monotonic()
        process.start()
        try:
            process.join(step.limit_s)
            is_late = process.is_alive()
        finally:
            _end(process)
        return _closed(path, process, time.monotonic() - started, is_late=is_late)


def mismatch(known: Result, step: Step, settings: Settings) -> str:
    """How the result's environment differs from the one that is here; empty where it does not."""
    here = environment()
    for name in sorted(here.keys() | known.environment.keys()):
        if known.environment.get(name) != here.get(name):
            return f"its {name} was {known.environment.get(name)}, not {here.get(name)}"
    if known.asked != step.asked(settings):
        return "it was asked for with other flags"
    return ""


@functools.cache
def _context(device: str) -> BaseContext:
    """Fresh processes on a GPU, as CUDA wants them. A rehearsal forks them from one that has torch
    and transformers imported, which takes longer than its steps."""
    if device != "cpu":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED])
    first = context.Process(target=_nothing)  # no step is to wait for the import
    first.start()
    first.join()
    return context


def _nothing() -> None:
    """What the first process that is forked does."""


def _end(process: BaseProcess) -> None:
    """With all that it has started. It leads a group of its own as soon as it runs our code."""
    if process.is_alive() and process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        process.join()


def _closed(path: Path, process: BaseProcess, seconds: float, *, is_late: bool) -> Result:
    """The result as the step left it; where it could not close it, that is done here."""
    result = load(path)
    assert result is not None, "it was written before the process began, and is replaced whole"
    result.seconds = seconds
    if is_late:
        result.status, result.reason = Status.OUT_OF_TIME, "stopped at its limit; partial results"
    elif result.status is Status.RUNNING:
        result.status = Status.FAILED
        result.reason = f"its process ended with {process.exitcode}; {_last_line(path)}"
    result.save(path)
    return result


def _last_line(path: Path) -> str:
    try:
        lines = path.with_suffix(".log").read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][-_MAX_REASON:] if lines else "it logged nothing"


def run_in_child(step: Step, settings: Settings, path: Path, log: Path) -> None:
    """The life of a step's process."""
    os.setpgid(0, 0)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _write_to(log)
    result = load(path)
    assert result is not None, "the runner has written it"
    findings = Findings(path, result)
    try:
        step.measure(settings, findings)
        result.status = Status.DONE
    except StepSkippedError as why:
        result.status, result.reason = Status.SKIPPED, str(why)
    except BaseException as error:
        traceback.print_exc()
        result.status = Status.FAILED
        result.reason = f"{type(error).__name__}: {error}"[:_MAX_REASON]
    result.cpu_s = sum(os.times()[:4])
    findings.save()


def _follow_parent() -> None:
    """A runner that is killed takes its step along."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def _write_to(log: Path) -> None:
    """Everything that is printed, by libraries too."""
    with log.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", force=True)
