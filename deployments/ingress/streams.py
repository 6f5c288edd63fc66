"""Streams of an answer: their beginning, a time limit, chunks that are held until they are worth a
message, and several streams as one. A stream that needs none of these is not wrapped.

The headers of an answer may leave once the pool has accepted the request. A refusal that needs no
waiting comes before that, as an HTTP status.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from deployments.errors import DeadlineError
from deployments.ingress.open_requests import parted
from deployments.ingress.output import OutputChunk, joined
from specdec_core.request import Request, TokenEvent

Item = TypeVar("Item")


class Admission:
    """Counts the choices of a request that the pool has accepted. Made in a running event loop."""

    def __init__(self, request_ids: Iterable[str]) -> None:
        self._missing = set(request_ids)
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when every choice was accepted."""

    def accept(self, request_id: str) -> None:
        """Note a choice, the first time or again."""
        self._missing.discard(request_id)
        if not self._missing and not self.complete.done():
            self.complete.set_result(None)


@dataclass(frozen=True, slots=True)
class Begun(Generic[Item]):
    """The pieces of an answer that was begun."""

    first: asyncio.Task[Item]
    """The first piece, or the error that came instead."""
    rest: AsyncGenerator[Item]

    async def aclose(self) -> None:
        """Leave the answer, whether its first piece has come or not."""
        self.first.cancel()
        await asyncio.wait([self.first])
        if not self.first.cancelled():
            self.first.exception()  # else asyncio logs it as never retrieved
        await self.rest.aclose()


async def begin(
    pieces: AsyncGenerator[Item], admission: Admission, patience_s: float
) -> Begun[Item]:
    """Ask for the first chunk, and wait up to `patience_s` seconds for it or for `admission`, which
    older coordinators do not report. Raises the error of a request that was refused."""
    begun = Begun(asyncio.ensure_future(anext(pieces)), pieces)
    try:
        either: list[asyncio.Future[Any]] = [begun.first, admission.complete]
        await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if begun.first.done():
            begun.first.result()
    except BaseException:
        await begun.aclose()
        raise
    return begun


def events_of(request: Request, events: AsyncGenerator[TokenEvent]) -> AsyncGenerator[TokenEvent]:
    """Return the events with the request's time limit, split where the client's own tokens end."""
    if request.resume_token_ids:
        events = divided(events, len(request.resume_token_ids))
    return events if request.timeout_s is None else within(request.timeout_s, events)


async def divided(events: AsyncGenerator[TokenEvent], count: int) -> AsyncGenerator[TokenEvent]:
    """Yield the events, split so that none has tokens on both sides of the first `count`."""
    async with contextlib.aclosing(events):
        async for event in events:
            for part in parted(event, count):
                yield part


async def within(timeout_s: float, items: AsyncGenerator[Item]) -> AsyncGenerator[Item]:
    """Yield the items. Leaving closes them. Raises DeadlineError after `timeout_s`."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    async with contextlib.aclosing(items):
        while True:
            try:
                # wait_for loses an end that comes with an item.
                async with asyncio.timeout_at(deadline):
                    item = await anext(items)
            except TimeoutError:
                raise DeadlineError(f"not finished within {timeout_s:g} s") from None
            except StopAsyncIteration:
                return
            yield item


async def gathered(
    pieces: AsyncGenerator[OutputChunk], stream_interval: int
) -> AsyncGenerator[OutputChunk]:
    """Yield the first chunk immediately, then chunks of at least `stream_interval` tokens.

    The last chunk may have fewer tokens. Chunks held when an error comes are yielded before it.
    """
    held: list[OutputChunk] = []
    needed = 0
    async with contextlib.aclosing(pieces):
        try:
            async for piece in pieces:
                held.append(piece)
                if piece.finish_reason is not None or _num_tokens(held) >= needed:
                    told, held, needed = held, [], stream_interval
                    yield _one(told)
        except Exception:
            if held:
                yield _one(held)
            raise


def _one(pieces: Sequence[OutputChunk]) -> OutputChunk:
    return pieces[0] if len(pieces) == 1 else joined(pieces)


def _num_tokens(pieces: Sequence[OutputChunk]) -> int:
    return sum(len(piece.token_ids) for piece in pieces)


async def interleaved(
    streams: Sequence[AsyncGenerator[Item]],
) -> AsyncGenerator[tuple[int, Item]]:
    """Yield the items of all streams as they come, each with the index of its stream.

    The first error ends all streams, and so does leaving early.
    """
    queue: asyncio.Queue[tuple[int, Item] | Exception | None] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_report(index, stream, queue)) for index, stream in enumerate(streams)
    ]
    try:
        num_live = len(tasks)
        while num_live:
            found = await queue.get()
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
    index: int,
    stream: AsyncGenerator[Item],
    queue: asyncio.Queue[tuple[int, Item] | Exception | None],
) -> None:
    """Put the items of one stream into `queue`. None marks the end of the stream."""
    try:
        async with contextlib.aclosing(stream) as items:
            async for item in items:
                queue.put_nowait((index, item))
        queue.put_nowait(None)
    except Exception as error:
        queue.put_nowait(error)
