"""Send what is left when a process ends, without waiting for an unreachable collector."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

CLOSE_S = 3.0
"""Maximum time in seconds that exporters delay the end of a process."""


async def close(send: Callable[[], object]) -> None:
    """Run `send` in a daemon thread and wait for it for at most CLOSE_S."""
    ending = threading.Thread(target=send, daemon=True)
    ending.start()
    await asyncio.to_thread(ending.join, CLOSE_S)
