"""Record of one request of a load: arrival times and contents of its answer's chunks.

All times are seconds of one clock, which is `time.perf_counter` outside tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from deployments.cli.bench.speculation import SpecCounts
from specdec_core.errors import SpecdecError

Clock = Callable[[], float]


class AnswerError(SpecdecError):
    """A failed request. The message gives the reason."""


class Usage(NamedTuple):
    """Token counts of the server."""

    num_input: int
    num_output: int


NO_TOKENS = Usage(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One message of a streamed answer."""

    is_output: bool = True
    """False if the chunk has only totals."""
    weight: int = 0
    """Amount of output in the chunk: token IDs if present, otherwise characters. 0 if there is
    neither."""
    usage: Usage | None = None
    speculation: SpecCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Times and totals of one request."""

    start_s: float
    """Time of sending."""
    end_s: float
    """Time of the last output, or of the failure."""
    chunk_s: tuple[float, ...] = ()
    """Arrival times of chunks with output. An answer has at least one."""
    weights: tuple[int, ...] = ()
    """Weights of these chunks."""
    usage: Usage = NO_TOKENS
    speculation: SpecCounts | None = None
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """Seconds to the first chunk that carries tokens or text."""
        return self.chunk_s[0] - self.start_s

    @property
    def e2el_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first. None if the answer has only one token."""
        num_later = self.usage.num_output - 1
        return (self.e2el_s - self.ttft_s) / num_later if num_later > 0 else None

    @property
    def itl_s(self) -> list[float]:
        """Gaps between chunks. With speculation a chunk has several tokens."""
        return [later - earlier for earlier, later in pairwise(self.chunk_s)]

    @property
    def tokens_per_chunk(self) -> list[float]:
        """The server's token count, divided among the chunks by their weights."""
        total = sum(self.weights)
        return [self.usage.num_output * weight / total for weight in self.weights]

    @property
    def tokens_by_time(self) -> list[tuple[float, float]]:
        """Arrival time and tokens of each chunk."""
        return list(zip(self.chunk_s, self.tokens_per_chunk, strict=True))


@dataclass(eq=False, slots=True)
class _Timeline:
    """State of an answer in progress."""

    start_s: float
    chunk_s: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    output_s: float | None = None
    """Time of the last output chunk, including a chunk without text."""
    usage: Usage | None = None
    speculation: SpecCounts | None = None

    def note(self, chunk: Chunk, now: float) -> None:
        if chunk.is_output:
            self.output_s = now
        if chunk.weight:
            self.chunk_s.append(now)
            self.weights.append(chunk.weight)
        self.usage = chunk.usage or self.usage
        self.speculation = chunk.speculation or self.speculation

    def finished(self) -> RequestRecord:
        """Return the record. Raises AnswerError if the answer lacks a measured value."""
        if self.output_s is None:
            raise AnswerError("the stream ended without any output")
        if self.usage is None:
            raise AnswerError("the stream told no usage: stream_options.include_usage is needed")
        # Tokens without text, such as a single end token, came with the last chunk.
        return RequestRecord(
            start_s=self.start_s,
            end_s=self.output_s,
            chunk_s=tuple(self.chunk_s) or (self.output_s,),
            weights=tuple(self.weights) or (1,),
            usage=self.usage,
            speculation=self.speculation,
        )


async def record_request(
    chunks: AsyncGenerator[Chunk], *, timeout_s: float, clock: Clock = time.perf_counter
) -> RequestRecord:
    """Read an answer to its end. Any failure becomes the record's error, so that the run
    continues."""
    timeline = _Timeline(clock())
    try:
        async with asyncio.timeout(timeout_s) as limit, contextlib.aclosing(chunks):
            async for chunk in chunks:
                timeline.note(chunk, clock())
        return timeline.finished()
    except TimeoutError as error:
        why = f"no end within {timeout_s:g} s" if limit.expired() else _told(error)
    except AnswerError as error:
        why = str(error)
    except Exception as error:
        why = _told(error)
    return RequestRecord(start_s=timeline.start_s, end_s=clock(), error=why)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
