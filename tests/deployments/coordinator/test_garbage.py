"""When the coordinator looks through its objects, and what that gives back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deployments.runtime.garbage import is_look_short

_PROGRAM = """
import gc, sys
from deployments.runtime.garbage import look_seldom
look_seldom()
before = sys.getallocatedblocks()
for length in range(2, 18):
    kept = [tuple(range(1000, 1000 + length)) for _ in range(1000)]
    del kept
gone = sys.getallocatedblocks() - before
gc.collect()
print(gone, sys.getallocatedblocks() - before)
"""


def test_a_whole_look_gives_back_what_python_keeps_of_tuples() -> None:
    """Which is why it is done under load as well. Python itself looks at the youngest first."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    kept, left = map(int, done.stdout.split())
    assert kept > 10_000
    assert left < 500


@pytest.mark.parametrize(("num_live", "expected"), [(0, True), (32, True), (10_000, False)])
def test_a_look_is_short_where_few_are_live(num_live: int, expected: bool) -> None:
    assert is_look_short(num_live) is expected
