"""The cells of the benchmark: how many rows, what speculation, and how fast the device is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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


GPU_MAX_K = 8
CPU_MAX_K = 15
"""K as shipped, also for commits that shipped 4: so that commits can be compared."""


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


def _cells_of(device: DeviceKind, rows: Sequence[int]) -> Iterator[Cell]:
    """Yield plain decoding and the usual n-gram cell."""
    for count in rows:
        yield Cell(device, count, Method.PLAIN)
        yield Cell(device, count, Method.NGRAM_07)


ALL = tuple(Cell(*one) for one in product(DeviceKind, ROWS, Method))
SUBSETS: dict[str, tuple[Cell, ...]] = {
    "default": (
        *(Cell(DeviceKind.H100, rows, method) for rows in ROWS for method in Method),
        *_cells_of(DeviceKind.CPU, (1, 8, 32)),
        *_cells_of(DeviceKind.NONE, (1, 8, 128)),
    ),
    "check": tuple(
        Cell(DeviceKind.H100, rows, method)
        for rows in (8, 64, 128)
        for method in (Method.PLAIN, Method.DRAFT)
    ),
    "all": ALL,
}
"""Named sets of cells. `default` takes one to two minutes."""


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


Timed = tuple[tuple[int, int, float], ...]
"""Passes that were timed at a start: sequences, tokens of all of them, and seconds."""
_H100_TARGET_TIMED: Timed = ((1, 1, 7.08e-3), (1, 5, 6.98e-3), (4, 4, 7.01e-3))
_H100_DRAFT_TIMED: Timed = (
    (1, 4, 6.04e-3),
    (8, 32, 6.04e-3),
    (1, 1, 1.60e-3),
    (32, 128, 6.64e-3),
    (8, 8, 1.83e-3),
    (16, 64, 6.43e-3),
)
"""First line of `rounds_of_one_engine.txt`: 16 cached tokens, and recordings took most of the time
that a start may spend, so few sizes were timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Pass times of a device."""

    target: PassTimes
    draft_step: PassTimes
    is_async: bool
    """Whether the host works while a pass runs."""
    max_k: int = GPU_MAX_K
    """Maximum of drafted tokens that the policy chooses from."""
    target_timed: Timed = ()
    """What the policy knows of the target at first; if it is empty, passes are timed."""
    draft_timed: Timed = ()
    """What the policy knows of the draft at first; if it is empty, drafts are timed."""

    def scaled(self, factor: float) -> DeviceTimes:
        """Return a device that takes `factor` times as long for each pass."""
        return replace(
            self,
            target=self.target.scaled(factor),
            draft_step=self.draft_step.scaled(factor),
            target_timed=_scaled(self.target_timed, factor),
            draft_timed=_scaled(self.draft_timed, factor),
        )


def _scaled(timed: Timed, factor: float) -> Timed:
    return tuple((sequences, tokens, seconds * factor) for sequences, tokens, seconds in timed)


def times_of(kind: DeviceKind, prices: Path = _RESULTS / "pass_prices.json") -> DeviceTimes:
    """Return the pass times of a kind; those of a CPU are read from `prices`."""
    if kind is DeviceKind.H100:
        return DeviceTimes(
            target=H100_TARGET,
            draft_step=H100_DRAFT_STEP,
            is_async=True,
            target_timed=_H100_TARGET_TIMED,
            draft_timed=_H100_DRAFT_TIMED,
        )
    if kind is DeviceKind.NONE:
        return DeviceTimes(target=NO_TIME, draft_step=NO_TIME, is_async=True)
    target = cpu_times(json.loads(prices.read_text())["prices"])
    draft_step = target.scaled(_CPU_DRAFT_SHARE)
    return DeviceTimes(target=target, draft_step=draft_step, is_async=False, max_k=CPU_MAX_K)


def cpu_times(prices: Sequence[dict[str, float]]) -> PassTimes:
    """Return the pass times of a file that `benchmarks.pass_prices` wrote."""
    return PassTimes(
        {
            (int(price["sequences"]), int(price["tokens"])): price["median_s"]
            for price in prices
            if price["cached"] == _CPU_CACHED
        }
    )
