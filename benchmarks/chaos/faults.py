"""One fault after the other, in turn over all kinds of process and both kinds of fault."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from benchmarks.harness.processes import Kind, Pids


class Blow(StrEnum):
    """What is done to a process."""

    KILL = "kill"
    STOP = "stop"
    """SIGSTOP, and SIGCONT later."""


class Fault(NamedTuple):
    kind: Kind
    blow: Blow

    def __str__(self) -> str:
        return f"{self.blow} {self.kind}"


CYCLE = tuple(
    Fault(kind, blow)
    for blow in Blow
    for kind in (
        Kind.DRAFT,
        Kind.COORDINATOR,
        Kind.TARGET,
        Kind.INGRESS,
        Kind.CONTROLLER,
        Kind.PROXY,
    )
)
"""The target before those whose end is not noticed while it is away."""


def parse_cycle(text: str) -> tuple[Fault, ...]:
    """Return faults by name, as in "kill target, stop draft"; an empty text gives all.

    Raises ValueError, which names the known faults.
    """
    known = {str(fault): fault for fault in CYCLE}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return tuple(known[name] for name in names) or CYCLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that happened."""

    fault: Fault
    pid: int
    at_s: float
    until_s: float
    """A stopped process goes on then; a killed one never does."""


class Striker:
    """Strikes every so many seconds; a kind of which no process lives has its turn later."""

    def __init__(
        self,
        find: Callable[[], Pids],
        *,
        every_s: float,
        stop_s: float,
        cycle: Sequence[Fault] = CYCLE,
        repeats: bool = True,
        report: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`repeats`: the cycle begins again when it is over."""
        self._find = find
        self._every_s = every_s
        self._stop_s = stop_s
        self._waiting = deque(cycle)
        self._missing = set(cycle)
        self._repeats = repeats
        self._report = report
        self.strikes: list[Strike] = []

    @property
    def is_cycle_complete(self) -> bool:
        return not self._missing

    async def run(self) -> None:
        """Until it is cancelled, or the only cycle is over; nothing stays stopped."""
        due_s = time.monotonic() + self._every_s
        while self._repeats or self._missing:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            due_s = max(due_s + self._every_s, time.monotonic())
            await self._strike_next()

    async def _strike_next(self) -> None:
        pids = await asyncio.to_thread(self._find)
        due = (fault for fault in self._waiting if self._repeats or fault in self._missing)
        fault = next((fault for fault in due if pids[fault.kind]), None)
        if fault is None:
            return
        self._waiting.remove(fault)
        self._waiting.append(fault)
        self._report(str(fault))
        with contextlib.suppress(ProcessLookupError):
            await self._strike(fault, pids[fault.kind][0])
            self._missing.discard(fault)

    async def _strike(self, fault: Fault, pid: int) -> None:
        at_s = time.monotonic()
        if fault.blow is Blow.KILL:
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(self._stop_s)
            finally:
                os.kill(pid, signal.SIGCONT)
        self.strikes.append(Strike(fault=fault, pid=pid, at_s=at_s, until_s=time.monotonic()))
