"""Runs the named tests on a copy of the tree, without and with each defect."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import pytest

from tests.mutants.mutant import Mutant, StaleMutantError

ROOT = Path(__file__).parent.parent.parent
_COPIED = ("specdec_core", "deployments", "benchmarks", "proto", "tests", "pyproject.toml")
_TIMEOUT_S = 300
_NOT_A_VERDICT = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")
"""Errors of a mutant that is no defect but nonsense: whoever wrote it shall write it again."""


_UNUSED_PLUGINS = ("cacheprovider", "anyio", "unraisableexception", "threadexception")
"""They would cost a run half of its time."""
_PROCESSES = multiprocessing.get_context("forkserver")
"""Each run is forked from a process that has imported what takes seconds, and nothing of ours."""
_PROCESSES.set_forkserver_preload(["pytest", "hypothesis", "torch", "tests.tiny_models"])


class Outcome(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    """A named test passes: a test is missing."""
    STALE = "stale"
    """The record does not fit the code any more."""
    BROKEN = "broken"
    """No verdict: the test fails without the defect too, hangs, or cannot even start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    outcome: Outcome
    detail: str
    """How the first named test failed, or what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """One test, run once with all its cases."""

    num_passed: int
    failure: str | None
    """First line of the first failure of a case."""
    error: str | None
    """Why nothing can be said: a collection error, a timeout, no case at all."""

    @property
    def is_clean(self) -> bool:
        return self.error is None and self.failure is None and self.num_passed > 0


def run_mutants(mutants: Sequence[Mutant], num_jobs: int) -> Iterator[Verdict]:
    """The verdicts, in the order of the mutants."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if not any(Path("/dev").glob("nvidia*")):
        os.environ.setdefault("TRITON_INTERPRET", "1")  # as tests/conftest.py, before Triton comes
    with copies(num_jobs) as folders, ThreadPoolExecutor(num_jobs) as executor:
        free: SimpleQueue[Path] = SimpleQueue()
        for folder in folders:
            free.put(folder)
        sound: dict[str, bool] = {}

        def judge(mutant: Mutant) -> Verdict:
            copy = free.get()
            try:
                return _judge(mutant, copy, sound)
            finally:
                free.put(copy)

        yield from executor.map(judge, mutants)


def _judge(mutant: Mutant, copy: Path, sound: dict[str, bool]) -> Verdict:
    try:
        mutant.mutated(copy)
        mutant.check_tests(copy)
    except StaleMutantError as error:
        return Verdict(mutant=mutant, outcome=Outcome.STALE, detail=str(error))
    details: list[str] = []
    for test in mutant.tests:
        if test not in sound:
            sound[test] = run_test(test, copy).is_clean
        if not sound[test]:
            detail = f"{test} does not pass without the defect"
            return Verdict(mutant=mutant, outcome=Outcome.BROKEN, detail=detail)
        with mutant.applied(copy):
            run = run_test(test, copy)
        outcome = outcome_of(run)
        if outcome is not Outcome.KILLED:
            detail = run.error or run.failure or f"{test} passes"
            return Verdict(mutant=mutant, outcome=outcome, detail=detail)
        details.append(run.failure or "")
    return Verdict(mutant=mutant, outcome=Outcome.KILLED, detail=details[0])


def outcome_of(run: TestRun) -> Outcome:
    if run.error is not None:
        return Outcome.BROKEN
    if run.failure is None:
        return Outcome.SURVIVED if run.num_passed else Outcome.BROKEN
    return Outcome.BROKEN if run.failure.startswith(_NOT_A_VERDICT) else Outcome.KILLED


def run_test(test: str, copy: Path) -> TestRun:
    """Run one node id in a process of its own, up to its first failing case."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        process = _PROCESSES.Process(target=_run_pytest, args=(test, copy, report))
        process.start()
        process.join(_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            return TestRun(num_passed=0, failure=None, error=f"{test} hangs")
        if not report.is_file():
            return TestRun(num_passed=0, failure=None, error=f"{test} cannot be started")
        return read_report(report.read_text())


def _run_pytest(test: str, copy: Path, report: Path) -> None:
    """What `make test` would run, in a fresh process: everything of ours comes from the copy,
    nothing is left there."""
    os.chdir(copy)
    sys.dont_write_bytecode = True
    sys.path[:] = [str(copy), *(folder for folder in sys.path if folder not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in _COPIED]:
        del sys.modules[name]
    arguments = ["-q", "-x", "--hypothesis-seed=0", "-m", "not nightly"]
    for plugin in _UNUSED_PLUGINS:
        arguments += ["-p", f"no:{plugin}"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        pytest.main([*arguments, f"--junitxml={report}", test])


def read_report(report: str) -> TestRun:
    """What a JUnit report says: a failure happened in a test, an error around it."""
    root = ET.fromstring(report)
    cases = list(root.iter("testcase"))
    failures = [item.get("message", "") for item in root.iter("failure")]
    errors = [item.get("message", "") for item in root.iter("error")]
    hangs = [line for line in failures if line.startswith("Failed: Timeout")]
    num_skipped = sum(case.find("skipped") is not None for case in cases)
    return TestRun(
        num_passed=len(cases) - len(failures) - len(errors) - num_skipped,
        failure=_first_line(failures),
        error=_first_line(errors + hangs) or (None if cases else "no test was run"),
    )


def _first_line(messages: Sequence[str]) -> str | None:
    return (messages[0].splitlines() or [""])[0] if messages else None


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """Copies of the tree that may be damaged."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        folders = [Path(folder) / str(index) for index in range(count)]
        for one in folders:
            copy_tree(one)
        yield folders


def copy_tree(destination: Path) -> None:
    destination.mkdir()
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(source, destination / name, ignore=ignored)
        else:
            shutil.copy(source, destination / name)
