"""Gives the memory of a burst back to the machine when it is over."""

from __future__ import annotations

import asyncio
import ctypes
import gc

_EVERY_S = 10.0


async def keep_trimming(every_s: float = _EVERY_S) -> None:
    """For ever. Serve leaves every request in a cycle of garbage (a task that failed and the frame
    that asked it), and Python looks for it only when there is a quarter more than at its last look.
    glibc keeps what was freed below what is still used, which after some thousand requests at once
    is most of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(every_s)
        gc.collect()
        await asyncio.to_thread(trim, 0)
