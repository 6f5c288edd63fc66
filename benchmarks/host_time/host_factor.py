"""How much slower the host of the measured GPU is than this one, by functions profiled on both."""

from __future__ import annotations

import cProfile
import pstats
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "results" / "gpu_h100" / "rounds_of_one_engine.txt"
_LINE = re.compile(r"\s*(\d+)(?:/\d+)?\s+([\d.]+)(?:\s+[\d.]+){3}\s+(\S+):\d+\((\w+)\)")
"""Calls, own seconds, file and function of a line of a printed profile."""
_PACKAGE = "specdec_core/"
_PURE = ("leases.py", "replica.py", "pool/", "models/pass_plan.py")
"""Files of specdec_core whose functions call no tensor operation."""
_LEAST_CALLS = 500
"""Calls of a function below which a profile of milliseconds is too coarse."""

Name = tuple[str, str]
"""File within specdec_core, and function."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A function in a profile."""

    num_calls: int
    own_s: float
    """Seconds in the function itself, all calls together."""

    @property
    def per_call_s(self) -> float:
        return self.own_s / self.num_calls


@dataclass(frozen=True, slots=True)
class Compared:
    """A function on both hosts, in seconds a call."""

    name: Name
    there_s: float
    here_s: float
    num_calls: int
    """Calls in the recorded profile."""

    @property
    def ratio(self) -> float:
        return self.there_s / self.here_s


@dataclass(frozen=True, slots=True)
class HostFactor:
    """Time of a Python call on the recorded host over the time on this one."""

    factor: float
    """Time of all recorded calls there, over the time of as many here."""
    median: float
    """Median of the functions' ratios."""
    functions: tuple[Compared, ...]


def recorded_costs(text: str) -> dict[Name, Cost]:
    """Return the pure functions in a printed profile."""
    found = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and (file := _file_of(match[3])) is not None:
            found[file, match[4]] = Cost(int(match[1]), float(match[2]))
    return _often(found)


def profiled(run: Callable[[], object]) -> dict[Name, Cost]:
    """Return the pure functions of a profile of `run`.

    A profile counts the time in which other processes had the core. What they took is taken off
    all functions alike.
    """
    profile = cProfile.Profile()
    started, cpu_before = time.monotonic(), time.thread_time()
    profile.runcall(run)
    share = (time.thread_time() - cpu_before) / (time.monotonic() - started)
    found = {}
    stats: Mapping[tuple[str, int, str], tuple[int, int, float, float, object]]
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (path, _, function), (_, num_calls, own_s, _, _) in stats.items():
        if (file := _file_of(path)) is not None:
            found[file, function] = Cost(num_calls, own_s * share)
    return _often(found)


def factor_of(there: Mapping[Name, Cost], runs: Iterable[Mapping[Name, Cost]]) -> HostFactor:
    """Compare a recorded profile with the quickest of some runs here, function by function.

    Raises ValueError if no recorded function ran here.
    """
    here: dict[Name, float] = {}
    for run in runs:
        for name, cost in run.items():
            here[name] = min(cost.per_call_s, here.get(name, cost.per_call_s))
    functions = tuple(
        Compared(name, cost.per_call_s, here[name], cost.num_calls)
        for name, cost in sorted(there.items())
        if name in here
    )
    if not functions:
        raise ValueError(
            "no recorded function ran here: run the factor on commit ecea5c2, "
            "PYTHONPATH=TREE python benchmarks/host_time --factor"
        )
    total_there = sum(one.there_s * one.num_calls for one in functions)
    total_here = sum(one.here_s * one.num_calls for one in functions)
    return HostFactor(
        total_there / total_here, statistics.median(one.ratio for one in functions), functions
    )


def _file_of(path: str) -> str | None:
    """Return a pure file's path within specdec_core."""
    _, _, file = path.replace("\\", "/").rpartition(_PACKAGE)
    is_inside = _PACKAGE in path
    return file if is_inside and file.startswith(_PURE) else None


def _often(costs: dict[Name, Cost]) -> dict[Name, Cost]:
    return {name: cost for name, cost in costs.items() if cost.num_calls >= _LEAST_CALLS}
