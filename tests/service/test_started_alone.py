"""What starts a Ray starts alone, and runs beside the others."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import StartedAlone

NUM_SERVICES = 4


def test_services_start_one_by_one_and_run_side_by_side(started_alone: StartedAlone) -> None:
    starting: list[int] = []
    most = 0
    all_run = threading.Barrier(NUM_SERVICES)

    @contextlib.contextmanager
    def service() -> Iterator[str]:
        nonlocal most
        starting.append(1)
        most = max(most, len(starting))
        time.sleep(0.01)
        starting.pop()
        yield "running"

    def use(_: int) -> str:
        with started_alone(service()) as started:
            all_run.wait(timeout=60)
            return str(started)

    with ThreadPoolExecutor(NUM_SERVICES) as threads:
        assert list(threads.map(use, range(NUM_SERVICES))) == ["running"] * NUM_SERVICES
    assert most == 1
