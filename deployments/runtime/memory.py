"""Returns memory to the machine after a burst and after loading, and chooses allocators that keep
least."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable

_EVERY_S = 10.0

BURST_ALLOCATOR = {"PYTHONMALLOC": "malloc"}
"""Environment of processes that take bursts, including the proxies that Serve starts.

Python's own allocator keeps an arena of a burst as long as something small lives in it. glibc's
allocator returns the pages between. After a first burst 4 % of it stay, instead of 9.
"""
STEADY_ALLOCATOR = {"PYTHONMALLOC": "pymalloc"}
"""Environment of processes that bursts do not fully reach, which have their own environment.

Python's own allocator is the faster one for many small objects.
"""


_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Looked up once, because each `CDLL` makes a class, which is garbage in a cycle."""


def trim() -> None:
    """Return freed memory that glibc keeps below memory still in use."""
    if _malloc_trim is not None:
        _malloc_trim(0)


_forget_lookups: Callable[[], object] = (
    getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
)
"""Empties Python's cache of attribute lookups.

The cache has 4,096 entries by the address of the name, and each entry holds its name. Unpickling
looks a class up by a new string each time, so a burst fills the cache. Each of those strings keeps
a page of the burst from being returned.
"""


def collect() -> None:
    """Free what is unused but still held by Python.

    These are cycles, Python's lists of freed tuples, and names that were looked up.
    """
    gc.collect()
    _forget_lookups()


async def keep_trimming(
    every_s: float = _EVERY_S, is_calm: Callable[[], bool] = lambda: True
) -> None:
    """Return freed memory every `every_s` seconds, forever.

    Serve leaves every request in a cycle of garbage (a task that failed, and the frame that had
    asked it). Python collects old objects only when there are a quarter more than at its last look.
    A proxy therefore held 26 MiB of a burst of 2,000. A full collection also empties the lists in
    which Python keeps freed tuples, 2,000 of each length. Under steady load these are some MiB of a
    coordinator.

    A full collection delays all work, so it waits until `is_calm`. Returning memory (3 ms in a
    thread) does not wait. Ray's own export of metrics needs some MiB every 10 s, which stayed for
    up to a minute.
    """
    while True:
        await asyncio.sleep(every_s)
        if is_calm():
            collect()
        await asyncio.to_thread(trim)
