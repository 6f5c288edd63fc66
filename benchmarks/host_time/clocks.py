"""Two clocks for a benchmark on a modelled device: real time, and the CPU time of one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Protocol
from unittest import mock

from benchmarks.host_time.device import SPIN_S


class ClockKind(StrEnum):
    """What a benchmark's seconds are."""

    CPU = "cpu"
    """CPU time of the thread, and sleeps that pass at once. Other processes do not slow it down,
    and the thread never sleeps, as one that polls a GPU."""
    WALL = "wall"
    """Real time. The host may wake up late from a pass."""


class Clock(Protocol):
    """Seconds, and a way to let them pass."""

    spin_s: float
    """Seconds by which a sleep may be wrong, roughly."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class CpuClock:
    """CPU time of the calling thread plus all sleeps, which pass without waiting."""

    spin_s = 0.0

    def __init__(self) -> None:
        self._slept = 0.0
        self._cpu_s = time.thread_time

    def now(self) -> float:
        return self._cpu_s() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


class WallClock:
    """Real time."""

    spin_s = SPIN_S

    def __init__(self) -> None:
        self.now = time.perf_counter
        self.sleep = time.sleep


def clock_of(kind: ClockKind) -> Clock:
    """Return a new clock."""
    return CpuClock() if kind is ClockKind.CPU else WallClock()


@contextmanager
def everyone_reads(clock: Clock) -> Iterator[None]:
    """Within it, `time.perf_counter` is the clock: specdec_core times its passes by it."""
    with mock.patch.object(time, "perf_counter", clock.now):
        yield
