"""A team's results are those of one thread, wherever its threads fall asleep."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int64, c_uint64, c_void_p
from pathlib import Path
from threading import Thread

import pytest

from specdec_core.kernels.build import FLAGS, build_library
from specdec_core.sampling.cpu import load_choice_kernels

SOURCE = Path(__file__).with_name("team_stress.c")
WIDTH = 8
NUM_JOBS = 100
SHAPES = {"few units": (6, 61), "many units": (64, 21)}
"""Units of a stage, stages of a job."""


class Facts(ctypes.Structure):
    """`Facts` of team_stress.c."""

    _fields_ = (
        ("numbers", c_void_p),
        *((name, c_int64) for name in ("num_units", "num_stages", "sleep_every", "sleep_us")),
        ("is_careless", c_int64),
    )


class Jobs:
    """Jobs of one shape; what they leave behind depends on every unit of all."""

    def __init__(self, library: ctypes.CDLL, shape: tuple[int, int]) -> None:
        self._run = library.stress_run
        self._run.restype = c_int64
        self._shape = shape
        self.alone, self.num_needed = self.run(num_threads=1, sleep_every=0)

    def run(
        self, num_threads: int, *, sleep_every: int = 97, is_careless: bool = False
    ) -> tuple[bytes, int]:
        """What is in the buffers in the end, and how many units were computed."""
        num_units, num_stages = self._shape
        numbers = (c_uint64 * (2 * num_units * WIDTH))(*range(1, 8))
        facts = Facts(
            ctypes.addressof(numbers), num_units, num_stages, sleep_every, 300, is_careless
        )
        count = self._run(byref(facts), c_int64(NUM_JOBS), c_int64(num_threads))
        return bytes(numbers), count


@pytest.fixture(scope="module", params=SHAPES)
def jobs(request: pytest.FixtureRequest) -> Jobs:
    if load_choice_kernels() is None:
        pytest.skip("no C compiler")
    return Jobs(build_library(SOURCE, FLAGS)[0], SHAPES[request.param])


@pytest.mark.covering(1)
@pytest.mark.parametrize("num_threads", [2, 3, 5])
def test_results_are_those_of_one_thread_wherever_threads_sleep(
    jobs: Jobs, num_threads: int
) -> None:
    numbers, num_computed = jobs.run(num_threads)

    assert numbers == jobs.alone
    assert num_computed > jobs.num_needed, "nobody did the work of one that slept"


def test_what_a_late_thread_writes_all_the_same_spoils_the_result(jobs: Jobs) -> None:
    """Why a unit asks before it writes; and that these tests would see it."""
    assert jobs.run(5, is_careless=True)[0] != jobs.alone


def test_callers_take_turns(jobs: Jobs) -> None:
    found: list[bytes] = []
    callers = [Thread(target=lambda: found.append(jobs.run(2)[0])) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert found == [jobs.alone] * 3


def test_a_forked_process_starts_threads_of_its_own(jobs: Jobs) -> None:
    jobs.run(3)
    child = os.fork()
    if child == 0:
        os._exit(int(jobs.run(3)[0] != jobs.alone))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
