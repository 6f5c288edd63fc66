"""What the processes of a service hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks.overload.held import OTHER, Held, held_by_kind, ours

_PARENT = """
import subprocess, sys

with subprocess.Popen([sys.executable, "-c", sys.argv[1]]) as child:
    sys.stdin.read()
    child.kill()
"""
"""Of nothing but the child: whoever runs the tests has children of its own."""
_CHILD = """
import threading, time

threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
while True:
    passing = threading.Thread(target=time.sleep, args=(0.02,))
    passing.start()
    passing.join()
"""
"""Two threads that stay, and nearly always one that does not."""


@pytest.fixture
def parent() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def test_threads_that_pass_are_not_counted(parent: int) -> None:
    held = [held_by_kind(parent)[OTHER] for _ in range(4)]
    assert {each.num_threads for each in held} == {2}
    assert all(each.num_processes == 1 and each.anon_mib > 0 for each in held)


def test_what_serves_is_counted_without_ray_itself() -> None:
    held = {"proxy": Held(pss_mib=1, num_files=2), "ray itself": Held(pss_mib=9)}
    assert ours(held | {"target": Held(pss_mib=3, num_files=1)}) == Held(pss_mib=4, num_files=3)
