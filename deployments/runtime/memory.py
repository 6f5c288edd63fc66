"""Gives memory back to the machine: of a burst when it is over, of loading when it is done; and
which allocator keeps least of it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable

_EVERY_S = 10.0

BURST_ALLOCATOR = {"PYTHONMALLOC": "malloc"}
"""For the environment of whatever takes bursts, the proxies that Serve starts too. Python's own
allocator keeps an arena of a burst as long as something small lives in it, glibc's gives back the
pages between: 4 % stay of a first burst instead of 9."""
STEADY_ALLOCATOR = {"PYTHONMALLOC": "pymalloc"}
"""Python's own, the faster one for many small objects: for processes that bursts do not reach
whole, in their own environment."""


_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Looked up once: each `CDLL` makes a class, which is garbage in a cycle."""


def trim() -> None:
    """glibc keeps what was freed below what is still used."""
    if _malloc_trim is not None:
        _malloc_trim(0)


_forget_lookups: Callable[[], object] = (
    getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
)
"""Empties Python's cache of attribute lookups, 4,096 entries by the address of the name, each with
a hold on it. Whoever unpickles looks a class up by a new string each time, so that a burst fills
it, and each of those strings keeps a page of the burst from going back."""


def collect() -> None:
    """Frees what nobody uses and only Python still holds: cycles, its lists of freed tuples, names
    that were looked up."""
    gc.collect()
    _forget_lookups()


async def keep_trimming(
    every_s: float = _EVERY_S, is_calm: Callable[[], bool] = lambda: True
) -> None:
    """For ever. Serve leaves every request in a cycle of garbage (a task that failed, and the frame
    that had asked it), and Python looks for old ones only when there are a quarter more than at its
    last look: a proxy held 26 MiB of a burst of 2,000 so. A whole look also empties the lists in
    which Python keeps freed tuples, 2,000 of each length: some MiB of a coordinator under steady
    load. That look holds up everybody, so it waits until `is_calm`; giving back (3 ms in a thread)
    does not: Ray's own export of metrics needs some MiB every 10 s, which stayed for up to a
    minute."""
    while True:
        await asyncio.sleep(every_s)
        if is_calm():
            collect()
        await asyncio.to_thread(trim)
