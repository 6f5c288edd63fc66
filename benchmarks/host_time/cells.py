"""The cells of the benchmark: how many rows, what speculation, and how fast the device is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path

from benchmarks.host_time.pass_times import H100_DRAFT_STEP, H100_TARGET, NO_TIME, PassTimes

ROWS = (1, 8, 32, 64, 128)
_RESULTS = Path(__file__).parents[1] / "results"
_CPU_CACHED = 100
"""Cached tokens of the CPU's passes."""
_CPU_DRAFT_SHARE = 0.1
"""Time of a draft's step on a CPU over that of its target's pass. A guess: no price is measured."""


class Method(StrEnum):
    """What proposes tokens, and how many of them are right."""

    PLAIN = "plain"
    NGRAM_0 = "ngram-0"
    """n-gram proposals of which none is accepted."""
    NGRAM_07 = "ngram-0.7"
    """n-gram proposals of which each token is right with probability 0.7."""
    DRAFT = "draft"
    """A draft model's proposals, right with probability 0.7."""

    @property
    def acceptance(self) -> float:
        return 0.0 if self in (Method.PLAIN, Method.NGRAM_0) else 0.7


class DeviceKind(StrEnum):
    """Whose pass times a device has."""

    H100 = "h100"
    CPU = "cpu"
    """A processor: a launch waits for its pass."""
    NONE = "none"
    """Passes take no time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting that is measured."""

    device: DeviceKind
    rows: int
    method: Method

    @property
    def name(self) -> str:
        return f"{self.device}/{self.rows}/{self.method}"


ALL = tuple(Cell(*one) for one in product(DeviceKind, ROWS, Method))
SUBSETS: dict[str, tuple[Cell, ...]] = {
    "default": (
        *(Cell(DeviceKind.H100, rows, method) for rows in (8, 32, 128) for method in Method),
        *(Cell(DeviceKind.CPU, rows, Method.PLAIN) for rows in (1, 8)),
        *(Cell(DeviceKind.CPU, rows, Method.NGRAM_07) for rows in (1, 8)),
        *(Cell(DeviceKind.NONE, rows, Method.NGRAM_07) for rows in (1, 128)),
    ),
    "check": tuple(
        Cell(DeviceKind.H100, rows, method)
        for rows in (8, 64, 128)
        for method in (Method.PLAIN, Method.DRAFT)
    ),
    "all": ALL,
}
"""Named sets of cells. `default` takes at most 2.5 minutes on two cores."""


def chosen(names: Iterable[str]) -> tuple[Cell, ...]:
    """Return the cells of the named subsets and the cells named one by one, each once.

    Raises ValueError for a name that is neither.
    """
    by_name = {cell.name: cell for cell in ALL}
    found: dict[Cell, None] = {}
    for name in names:
        if name not in SUBSETS and name not in by_name:
            raise ValueError(
                f"unknown cell {name!r}: name one of {', '.join(SUBSETS)} or DEVICE/ROWS/METHOD "
                f"with devices {_listed(DeviceKind)}, rows {_listed(ROWS)}, "
                f"methods {_listed(Method)}"
            )
        found |= dict.fromkeys(SUBSETS.get(name) or (by_name[name],))
    return tuple(found)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Pass times of a device."""

    target: PassTimes
    draft_step: PassTimes
    is_async: bool
    """Whether the host works while a pass runs."""

    def scaled(self, factor: float) -> DeviceTimes:
        """Return a device that takes `factor` times as long for each pass."""
        return DeviceTimes(
            self.target.scaled(factor), self.draft_step.scaled(factor), self.is_async
        )


def times_of(kind: DeviceKind, prices: Path = _RESULTS / "pass_prices.json") -> DeviceTimes:
    """Return the pass times of a kind; those of a CPU are read from `prices`."""
    if kind is DeviceKind.H100:
        return DeviceTimes(H100_TARGET, H100_DRAFT_STEP, is_async=True)
    if kind is DeviceKind.NONE:
        return DeviceTimes(NO_TIME, NO_TIME, is_async=True)
    target = cpu_times(json.loads(prices.read_text())["prices"])
    return DeviceTimes(target, target.scaled(_CPU_DRAFT_SHARE), is_async=False)


def cpu_times(prices: Sequence[dict[str, float]]) -> PassTimes:
    """Return the pass times of a file that `benchmarks.pass_prices` wrote."""
    return PassTimes(
        {
            (int(price["sequences"]), int(price["tokens"])): price["median_s"]
            for price in prices
            if price["cached"] == _CPU_CACHED
        }
    )
