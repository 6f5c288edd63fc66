"""One request of a load: when its answer's chunks came, and what they said of themselves.

All times are seconds of one clock, `time.perf_counter` outside tests.
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
    """A request that came to nothing; the message says why."""


class Usage(NamedTuple):
    """Tokens, as the server counts them."""

    num_input: int
    num_output: int


NO_TOKENS = Usage(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One message of a streamed answer."""

    is_output: bool = True
    """False: it tells only totals."""
    weight: int = 0
    """Its share of the output: ids where it has them, else characters. 0: it carries neither."""
    usage: Usage | None = None
    speculation: SpecCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What one request took."""

    start_s: float
    """When it was sent."""
    end_s: float
    """When the last of its output came, or it failed."""
    chunk_s: tuple[float, ...] = ()
    """When chunks with output came; at least one where there was an answer."""
    weights: tuple[int, ...] = ()
    """Of these chunks."""
    usage: Usage = NO_TOKENS
    speculation: SpecCounts | None = None
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """To the first chunk that carries tokens or text."""
        return self.chunk_s[0] - self.start_s

    @property
    def e2el_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def tpot_s(self) -> float | None:
        """Per output token but the first; None for an answer that has no other."""
        num_later = self.usage.num_output - 1
        return (self.e2el_s - self.ttft_s) / num_later if num_later > 0 else None

    @property
    def itl_s(self) -> list[float]:
        """Gaps between chunks. With speculation a chunk has several tokens."""
        return [later - earlier for earlier, later in pairwise(self.chunk_s)]

    @property
    def tokens_per_chunk(self) -> list[float]:
        """The server's count, divided among the chunks by their weights."""
        total = sum(self.weights)
        return [self.usage.num_output * weight / total for weight in self.weights]

    @property
    def tokens_by_time(self) -> list[tuple[float, float]]:
        """(when a chunk came, its tokens)"""
        return list(zip(self.chunk_s, self.tokens_per_chunk, strict=True))


@dataclass(eq=False, slots=True)
class _Timeline:
    """An answer so far."""

    start_s: float
    chunk_s: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    output_s: float | None = None
    """When the last chunk of the output came, one without text included."""
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
        """Raises AnswerError for an answer that lacks what is measured."""
        if self.output_s is None:
            raise AnswerError("the stream ended without any output")
        if self.usage is None:
            raise AnswerError("the stream told no usage: stream_options.include_usage is needed")
        # Tokens that have no text, such as an end id alone, came with the last chunk.
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
    """Read an answer to its end. Whatever goes wrong is the record's error: a run goes on."""
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
