"""Linux's counts of CPU time and of waiting for a core are read in seconds."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from benchmarks.host_time.served import waiting
from benchmarks.host_time.served.waiting import (
    CpuUse,
    GapWait,
    OwnWait,
    ThreadWait,
    read_schedstat,
    use_of_process,
)


def _task(proc: Path, pid: int, thread: int, line: str) -> None:
    folder = proc / str(pid) / "task" / str(thread)
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text(line)


def test_a_line_has_nanoseconds_of_running_then_of_waiting() -> None:
    assert read_schedstat("2500000000 750000000 12\n") == CpuUse(2.5, 0.75)


def test_a_process_is_the_sum_of_its_threads(tmp_path: Path) -> None:
    _task(tmp_path, 7, 7, "1000000000 100000000 1\n")
    _task(tmp_path, 7, 8, "2000000000 300000000 1\n")
    _task(tmp_path, 9, 9, "4000000000 700000000 1\n")
    found = use_of_process(7, tmp_path)
    assert found.cpu_s == pytest.approx(3.0)
    assert found.waited_s == pytest.approx(0.4)


def test_a_process_that_has_ended_uses_nothing(tmp_path: Path) -> None:
    assert use_of_process(7, tmp_path) == CpuUse()


def test_use_since_is_the_difference() -> None:
    assert CpuUse(3.0, 1.0).since(CpuUse(1.0, 0.25)) == CpuUse(2.0, 0.75)


def test_threads_read_their_own_wait() -> None:
    own, found = OwnWait(), []

    def look() -> None:
        found.append((own(), ThreadWait(threading.get_native_id())()))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[0][0] == pytest.approx(found[0][1], abs=1e-3)
    assert own() == pytest.approx(ThreadWait(os.getpid())(), abs=1e-3)


def test_a_gap_that_never_began_has_no_wait() -> None:
    assert GapWait().end() == 0.0


def test_a_gap_counts_what_the_busiest_threads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that spin share one core, so that some of them wait in every gap."""
    monkeypatch.setattr(waiting, "_GAPS_PER_LOOK", 5)
    cores = os.sched_getaffinity(0)
    is_over = threading.Event()

    def spin() -> None:
        os.sched_setaffinity(0, {min(cores)})
        while not is_over.is_set():
            sum(range(20_000))

    threads = [threading.Thread(target=spin) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        gap, waited_s = GapWait(), 0.0
        for _ in range(20):
            gap.begin()
            time.sleep(0.02)
            waited_s += gap.end()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert waited_s > 0.0
