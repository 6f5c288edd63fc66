"""Threads for work whose cost the caller chooses, such as tokenizing and rendering.

The size of the work decides the thread, so short work never waits for long work. A flood of long
work keeps one thread busy. The event loop does the shortest work itself.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

INLINE = 2_000
"""Maximum size, in characters or IDs, of the event loop's own work: at most 2 ms."""
_BOUNDS = (20_000, 200_000)
"""Maximum sizes of the lanes but the last one."""
_BYTES_PER_CHAR = 10
"""Bytes of a message that are read in the time in which one character is tokenized."""

Result = TypeVar("Result")


class Lanes:
    """One thread for each range of sizes."""

    def __init__(self) -> None:
        self._threads = [
            ThreadPoolExecutor(1, f"lane-{number}") for number in range(len(_BOUNDS) + 1)
        ]

    async def run(self, size: int, call: Callable[[], Result]) -> Result:
        """Return `call()`. `size` is the number of characters or IDs of the whole request."""
        if size <= INLINE:
            return call()
        thread = self._threads[bisect_left(_BOUNDS, size)]
        return await asyncio.get_running_loop().run_in_executor(thread, call)

    async def read(self, num_bytes: int, call: Callable[[], Result]) -> Result:
        """Return `call()`, which reads a message of `num_bytes`."""
        return await self.run(num_bytes // _BYTES_PER_CHAR, call)
