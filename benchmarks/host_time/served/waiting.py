"""CPU time of threads and their waiting for a core, as Linux counts both."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_SCHEDSTAT = "schedstat"
_LONGEST_LINE = 64
_NS = 1e-9
_NUM_THREADS = 3
"""Threads that GapWait reads: a replica's worker, its loop and gRPC's poller.

A lease passes through them one after another, so their waits add up. More threads would overlap.
"""
_GAPS_PER_LOOK = 200


class CpuUse(NamedTuple):
    """Use of the processor since a thread or a process began, in seconds."""

    cpu_s: float = 0.0
    waited_s: float = 0.0
    """Time in a run queue: ready to run while every core was taken."""

    def plus(self, other: CpuUse) -> CpuUse:
        """Return the sum of both."""
        return CpuUse(self.cpu_s + other.cpu_s, self.waited_s + other.waited_s)

    def times(self, factor: float) -> CpuUse:
        """Return `factor` times as much."""
        return CpuUse(factor * self.cpu_s, factor * self.waited_s)

    def since(self, earlier: CpuUse) -> CpuUse:
        """Return what came after `earlier`."""
        return CpuUse(self.cpu_s - earlier.cpu_s, self.waited_s - earlier.waited_s)


def read_schedstat(text: str) -> CpuUse:
    """Read the line of a schedstat file."""
    cpu_ns, waited_ns, _ = text.split()
    return CpuUse(int(cpu_ns) * _NS, int(waited_ns) * _NS)


def use_of_process(pid: int, proc: Path = _PROC) -> CpuUse:
    """Sum over the threads that live now; zero once the process has ended."""
    return use_of_threads((proc / str(pid) / "task").glob(f"*/{_SCHEDSTAT}"))


def use_of_threads(files: Iterable[Path]) -> CpuUse:
    """Sum over schedstat files; a thread that has ended counts nothing."""
    total = CpuUse()
    with suppress(FileNotFoundError, ProcessLookupError):  # the process ends while it is read
        for file in files:
            with suppress(FileNotFoundError, ProcessLookupError):
                total = total.plus(read_schedstat(file.read_text()))
    return total


class ThreadWait:
    """How long one thread of this process has waited for a core so far. A reading takes 1 us."""

    def __init__(self, thread: int) -> None:
        """`thread` is its native ID."""
        path = _PROC / "self" / "task" / str(thread) / _SCHEDSTAT
        self._file = os.open(path, os.O_RDONLY)

    def __call__(self) -> float:
        """Return the seconds since it began."""
        return read_schedstat(os.pread(self._file, _LONGEST_LINE, 0).decode()).waited_s

    def close(self) -> None:
        os.close(self._file)


class OwnWait:
    """How long the calling thread has waited for a core so far."""

    def __init__(self) -> None:
        self._threads = threading.local()

    def __call__(self) -> float:
        """Return the seconds since the thread began."""
        if not hasattr(self._threads, "wait"):
            self._threads.wait = ThreadWait(threading.get_native_id())
        own: ThreadWait = self._threads.wait
        return own()


class GapWait:
    """How long the busiest threads of this process wait for a core in gaps between its work.

    A process of Ray has some 80 threads, and to read all of them in each gap would take longer than
    the gap. The few that matter are found again now and then.
    """

    def __init__(self) -> None:
        self._threads: list[ThreadWait] = []
        self._at_begin_s: list[float] = []
        self._num_gaps = 0
        self._known: dict[int, float] = {}
        """CPU seconds of all threads when they were looked at last."""

    def begin(self) -> None:
        """Note that a gap begins."""
        if self._num_gaps % _GAPS_PER_LOOK == 0:
            self._look()
        self._num_gaps += 1
        self._at_begin_s = [thread() for thread in self._threads]

    def end(self) -> float:
        """Return the seconds since the gap began, summed over the threads; 0 if none began."""
        now_s = [thread() for thread in self._threads]
        return sum(now_s) - sum(self._at_begin_s)

    def _look(self) -> None:
        """Choose the threads that used most of the processor since the last time."""
        now: dict[int, float] = {}
        for task in (_PROC / "self" / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                now[int(task.name)] = read_schedstat((task / _SCHEDSTAT).read_text()).cpu_s
        grown = {thread: cpu_s - self._known.get(thread, 0.0) for thread, cpu_s in now.items()}
        self._known = now
        for thread in self._threads:
            thread.close()
        busiest = sorted(grown, key=lambda thread: grown[thread])[-_NUM_THREADS:]
        self._threads = [ThreadWait(thread) for thread in busiest]
