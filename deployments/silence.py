"""How both ends of a coordinator's stream notice that the other one hangs: a stopped process closes
nothing, so whoever has nothing to say beats, and whoever hears nothing gives the other up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

HEARTBEAT_S = 1.0
SILENCE_S = 10.0
"""Ten missed beats. Whoever was wrongly given up pays with a replay."""

T = TypeVar("T")


class SilenceError(ConnectionError):
    """The other end has said nothing for SILENCE_S."""


async def heard(messages: AsyncIterator[T]) -> AsyncGenerator[T]:
    """`messages` until their end. Raises SilenceError."""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                message = await anext(messages)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise SilenceError(f"nothing was heard for {SILENCE_S:g} s") from None
        yield message


async def or_beat(take: Callable[[], Awaitable[T | None]], beat: T) -> T | None:
    """What `take` answers within HEARTBEAT_S, else `beat`. A `take` that is given up loses
    nothing."""
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            return await take()
    except TimeoutError:
        return beat
