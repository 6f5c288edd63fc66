"""The beginning of a stream: its headers may leave once the pool has accepted the request.

A refusal that needs no waiting comes before that, as an HTTP status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
    """Ask for the first chunk, and wait until `admission` is complete.

    The first chunk ends the wait too, because an older coordinator does not report what it has
    accepted. The wait lasts at most `patience_s` seconds. Raises the error of a request that was
    refused meanwhile.
    """
    begun = Begun(asyncio.create_task(_first(pieces)), pieces)
    try:
        either: list[asyncio.Future[Any]] = [begun.first, admission.complete]
        await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if begun.first.done():
            begun.first.result()
    except BaseException:
        await begun.aclose()
        raise
    return begun


async def _first(pieces: AsyncGenerator[Item]) -> Item:
    return await anext(pieces)
