"""What a burst took of the memory is given back, though something above it is still used."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref

import pytest

from deployments.runtime import memory
from deployments.runtime.memory import keep_trimming

_PROGRAM = """
import asyncio, ctypes, psutil
from deployments.runtime.memory import keep_trimming

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
resident = lambda: psutil.Process().memory_info().rss / 2**20

async def main():
    before = resident()
    blocks = [libc.malloc(4000) for _ in range(50_000)]
    for block in blocks:
        ctypes.memset(block, 1, 4000)
    last = libc.malloc(4000)  # above all others, and kept
    for block in blocks:
        libc.free(block)
    del blocks
    kept = resident() - before
    task = asyncio.create_task(keep_trimming(every_s=0.01))
    while resident() - before > 30:
        await asyncio.sleep(0.01)
    print(round(kept))

asyncio.run(asyncio.wait_for(main(), 60))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_was_freed_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 150, "without it, most of 190 MiB stay resident"


class Request:
    """As Serve leaves one behind: in a cycle, and old."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_request_in_a_cycle_of_garbage_goes_too() -> None:
    left: list[weakref.ref[Request]] = []

    async def scenario() -> None:
        task = asyncio.create_task(keep_trimming(every_s=0.01))
        left.append(weakref.ref(Request()))
        while left[0]() is not None:
            await asyncio.sleep(0.01)
        task.cancel()

    gc.disable()  # what Python looks for by itself it finds later, if ever
    try:
        asyncio.run(asyncio.wait_for(scenario(), 60))
    finally:
        gc.enable()


def test_to_give_back_makes_no_garbage() -> None:
    """A class for each look into the C library was 1 MiB an hour."""
    memory.trim()
    gc.collect()
    gc.disable()
    try:
        memory.trim()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_names_that_were_looked_up_are_held_no_longer() -> None:
    """As an unpickler does for every message: the class's name is a new string each time, and
    Python's cache of lookups kept thousands of them after a burst, each with its page."""

    def looked_up(name: str) -> str:
        assert getattr(memory, name) is keep_trimming
        return name

    names = [looked_up("".join(["keep", "_trimming"])) for _ in range(64)]
    free = sys.getrefcount("".join(["keep", "_trimming"]))
    memory.collect()
    held = [sys.getrefcount(names.pop()) - free for _ in range(64)]
    assert sum(held) == 0


async def test_under_load_memory_is_given_back_and_nothing_is_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(memory, "trim", lambda: calls.append("trim"))
    monkeypatch.setattr(memory.gc, "collect", lambda: calls.append("collect"))
    loads = iter([False, False, True])
    task = asyncio.create_task(keep_trimming(every_s=0.001, is_calm=lambda: next(loads)))
    with pytest.raises(RuntimeError):  # the loads are over
        await task
    assert calls == ["trim", "trim", "collect", "trim"]
