"""CPU time of a round by function: a profile says the shares, the unprofiled rounds the sum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

_BUILT_IN = "~"
_COMPREHENSION = "<"
_PACKAGE = "specdec_core/"
_BENCHMARK = "benchmarks/host_time/"
_LIBRARIES = "libraries"
"""Name that stands for functions of PyTorch and of the standard library."""

Function = tuple[str, int, str]
"""File, line and name in a profile."""


Callers = Mapping[Function, tuple[int, int, float, float]]
Stats = Mapping[Function, tuple[int, int, float, float, Callers]]
"""Content of `pstats.Stats(profile).stats`: calls twice, own seconds, seconds, and callers."""


def shares_of(stats: Stats) -> dict[str, float]:
    """Return each function's share of the product's time, the largest first.

    The time of built-in functions and comprehensions counts for their callers. The benchmark's own
    functions, and its waits for the device, are left out.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for function, (_, _, own_s, _, callers) in stats.items():
        if function[0] != _BUILT_IN and not function[2].startswith(_COMPREHENSION):
            seconds[_name(function)] += own_s
            continue
        for caller, (_, _, within_s, _) in callers.items():
            seconds[_name(caller)] += within_s
    seconds.pop("", None)
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: own_s / total for name, own_s in ordered}


def _name(function: Function) -> str:
    """Return `file function` within the product, empty for the benchmark's own."""
    path, _, name = function
    path = path.replace("\\", "/")
    if _PACKAGE in path:
        return f"{Path(path.rpartition(_PACKAGE)[2])} {name}"
    return "" if _BENCHMARK in path else _LIBRARIES
