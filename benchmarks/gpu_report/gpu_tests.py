"""The tests of the repository that need a GPU, by pytest in this process."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.gpu_report.environment import ROOT
from benchmarks.gpu_report.results import Findings, StepSkippedError
from benchmarks.gpu_report.settings import Settings

_MARK = "mark.gpu"
_KERNEL_TESTS = [
    ROOT / "tests/models/cuda_graphs/test_triton_attention.py",
    ROOT / "tests/models/test_triton_ops.py",
]
"""Not marked: without a GPU Triton's interpreter runs them."""


def measure(settings: Settings, findings: Findings) -> None:
    if importlib.util.find_spec("pytest") is None:
        raise StepSkippedError("pytest is not installed")
    findings.fact("command", "pytest -m gpu, then the tests of the Triton kernels")
    _run(["-m", "gpu", *map(str, marked_files(ROOT / "tests"))], findings)
    if settings.device == "cpu":
        names = ", ".join(path.name for path in _KERNEL_TESTS)
        findings.fact("left out", f"{names}: there is no GPU")
    else:
        _run([*map(str, _KERNEL_TESTS)], findings)


def marked_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("test_*.py") if _MARK in file.read_text())


def _run(arguments: list[str], findings: Findings) -> None:
    import pytest

    seen = _Outcomes(findings)
    # Without the project's flags, which need plugins that may be missing.
    common = ["-o", "addopts=", "-p", "no:cacheprovider", "-ra", "--rootdir", str(ROOT)]
    if importlib.util.find_spec("hypothesis") is None:
        common.append("--noconftest")
    code = pytest.main([*common, *arguments], plugins=[seen])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}: the log of this step says why")


class _Outcomes:
    """Counts tests as they end, and names those that did not pass."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test has three reports: its call counts, and what goes wrong around it."""
        if report.when != "call" and report.passed:
            return
        facts, outcome = self._findings.result.facts, str(report.outcome)
        self._findings.fact(outcome, facts.get(outcome, 0) + 1)
        if not report.passed:
            test = str(report.nodeid).removeprefix("tests/")
            self._findings.row("tests not passed", test=test, outcome=outcome, why=_why(report))


def _why(report: Any) -> str:
    """The last line of a failure; of a skip its reason."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[-1])
    return str(report.longrepr).strip().splitlines()[-1][-200:]
