"""Iterates an event stream with an overall timeout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TypeVar

from deployments.errors import DeadlineError

Item = TypeVar("Item")


async def within(timeout_s: float | None, news: AsyncGenerator[Item]) -> AsyncGenerator[Item]:
    """Yield the items of `news`. Leaving closes `news`. Raises DeadlineError after `timeout_s`."""
    async with contextlib.aclosing(news):
        if timeout_s is None:  # an alarm for every item would be for nothing
            async for item in news:
                yield item
            return
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                # wait_for loses an end that comes with the news.
                async with asyncio.timeout_at(deadline):
                    item = await anext(news)
            except TimeoutError:
                raise DeadlineError(f"not finished within {timeout_s:g} s") from None
            except StopAsyncIteration:
                return
            yield item
