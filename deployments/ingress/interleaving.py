"""Several streams as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def interleaved(
    streams: Sequence[AsyncGenerator[Item]],
) -> AsyncGenerator[tuple[int, Item]]:
    """Yield the items of all streams as they come, each with the index of its stream.

    The first error ends all streams, and so does leaving early.
    """
    if len(streams) == 1:
        async with contextlib.aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    news: asyncio.Queue[tuple[int, Item] | Exception | None] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_report(place, stream, news)) for place, stream in enumerate(streams)
    ]
    try:
        num_live = len(tasks)
        while num_live:
            found = await news.get()
            if found is None:
                num_live -= 1
            elif isinstance(found, Exception):
                raise found
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _report(
    place: int,
    stream: AsyncGenerator[Item],
    news: asyncio.Queue[tuple[int, Item] | Exception | None],
) -> None:
    """Put the items of one stream into `news`. None marks the end of the stream."""
    try:
        async with contextlib.aclosing(stream) as items:
            async for item in items:
                news.put_nowait((place, item))
        news.put_nowait(None)
    except Exception as error:
        news.put_nowait(error)
