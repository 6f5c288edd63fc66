"""Ends what sends over a network, without waiting for a collector that is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

CLOSE_S = 3.0
"""That the end of a process is held up at most."""


async def close(send: Callable[[], object]) -> None:
    """Let it send what is left, in a thread that nobody waits for any longer than that."""
    ending = threading.Thread(target=send, daemon=True)
    ending.start()
    await asyncio.to_thread(ending.join, CLOSE_S)
