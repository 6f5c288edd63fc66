"""A team's results are those of one thread, wherever its threads fall asleep."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int64, c_uint64, c_void_p
from pathlib import Path
from threading import Thread

import pytest

from specdec_core.native_build import FLAGS, build_library
from specdec_core.native_choice import load_choice_kernels

SOURCE = Path(__file__).with_name("team_stress.c")
WIDTH = 8
NUM_JOBS = 250
SHAPES = {"few units": (6, 2, 60), "many units": (64, 2, 20), "more buffers": (17, 3, 40)}
"""Units of a stage, buffers that stages take turns with, stages."""


class Facts(ctypes.Structure):
    _fields_ = (
        ("numbers", c_void_p),
        *((name, c_int64) for name in ("num_units", "num_buffers", "sleep_every", "sleep_us")),
    )


class Jobs:
    """Jobs of one shape; what they leave behind depends on every unit."""

    def __init__(self, library: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
        self._run = library.stress_run
        self._run.restype = c_int64
        self.num_units, self.num_buffers, self.num_stages = shape
        self.alone, self.num_needed = self.run(num_threads=1, sleep_every=0)

    def run(
        self, num_threads: int, ring: int | None = None, sleep_every: int = 97
    ) -> tuple[bytes, int]:
        """What is in the buffers, and how many units were computed."""
        numbers = (c_uint64 * (self.num_buffers * self.num_units * WIDTH))(*range(1, 8))
        facts = Facts(
            numbers=ctypes.addressof(numbers),
            num_units=self.num_units,
            num_buffers=self.num_buffers,
            sleep_every=sleep_every,
            sleep_us=300,
        )
        ring = self.num_buffers if ring is None else ring
        count = self._run(byref(facts), *map(c_int64, (self.num_stages, ring, num_threads)))
        return bytes(numbers), count


@pytest.fixture(scope="module", params=SHAPES)
def jobs(request: pytest.FixtureRequest) -> Jobs:
    if load_choice_kernels() is None:
        pytest.skip("no C compiler")
    return Jobs(build_library(SOURCE, FLAGS)[0], SHAPES[request.param])


@pytest.mark.parametrize("num_threads", [2, 3, 5])
def test_results_are_those_of_one_thread_wherever_threads_sleep(
    jobs: Jobs, num_threads: int
) -> None:
    found = [jobs.run(num_threads) for _ in range(NUM_JOBS)]

    assert all(numbers == jobs.alone for numbers, _ in found)


def test_units_of_a_thread_that_sleeps_are_done_by_others(jobs: Jobs) -> None:
    num_computed = sum(count for _, count in (jobs.run(3) for _ in range(NUM_JOBS)))

    assert num_computed > NUM_JOBS * jobs.num_needed


def test_a_late_commit_spoils_memory_that_is_used_again_too_early(jobs: Jobs) -> None:
    """Why a stage waits for commits of the one that its ring names; and that these tests see it."""
    found = [jobs.run(5, ring=1000) for _ in range(NUM_JOBS)]

    assert any(numbers != jobs.alone for numbers, _ in found)


def test_a_second_caller_gets_the_same_meanwhile(jobs: Jobs) -> None:
    found: list[bytes] = []

    def run_some() -> None:
        found.extend(jobs.run(2)[0] for _ in range(50))

    callers = [Thread(target=run_some) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert found == [jobs.alone] * 150


def test_a_forked_process_starts_threads_of_its_own(jobs: Jobs) -> None:
    jobs.run(3)
    child = os.fork()
    if child == 0:
        os._exit(int(jobs.run(3)[0] != jobs.alone))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
