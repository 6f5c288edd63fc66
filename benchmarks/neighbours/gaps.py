"""The longest gap between chunks of one stream while other requests run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.neighbours.inputs import Input
from benchmarks.overload.http_exchange import connection, exchange, post
from benchmarks.overload.questions import Server
from specdec_core.errors import SpecdecError

_NUM_QUIET = 10
"""Chunks of the neighbour before the others come."""
_AFTER_S = 0.5
_LIMIT_S = 60.0
_NEIGHBOUR = {
    "prompt": list(range(20, 40)),
    "max_tokens": 4_000,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement of the neighbour next to some requests."""

    longest_gap_ms: float
    seconds: float
    """Until the last of the requests had ended."""
    statuses: dict[str, int]
    """How many requests ended with each HTTP status."""


@dataclass(eq=False, slots=True)
class Neighbour:
    """A stream, and when its chunks came."""

    times: list[float] = field(default_factory=list)

    async def read(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(2**16):
            self.times.append(time.perf_counter())

    async def wait_for(self, count: int) -> None:
        while len(self.times) < count:
            await asyncio.sleep(0.005)

    def longest_gap_s(self, start: float, end: float) -> float:
        """Longest time without a chunk in this span, one that is open at its end included."""
        within = [when for when in self.times if start < when < end]
        return max(late - early for early, late in pairwise([start, *within, end]))


async def trial(server: Server, inputs: Sequence[Input]) -> Trial:
    """Run the requests next to a new stream. Raises SpecdecError if the stream ends before them."""
    requests = [post(server, given.path, {"model": server.model, **given.body}) for given in inputs]
    neighbour = Neighbour()
    async with connection(server.host, server.port) as (reader, writer):
        writer.write(post(server, "/v1/completions", {"model": server.model, **_NEIGHBOUR}))
        reading = asyncio.create_task(neighbour.read(reader))
        try:
            async with asyncio.timeout(_LIMIT_S):
                await neighbour.wait_for(_NUM_QUIET)
                start = time.perf_counter()
                answers = await asyncio.gather(*(exchange(server, one) for one in requests))
            seconds = time.perf_counter() - start
            await asyncio.sleep(_AFTER_S)
            if reading.done():
                raise SpecdecError("the neighbour's stream ended before the other requests")
            gap = neighbour.longest_gap_s(start, time.perf_counter())
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
    statuses = Counter(str(answer.status) for answer in answers)
    return Trial(gap * 1000, seconds, dict(statuses))
