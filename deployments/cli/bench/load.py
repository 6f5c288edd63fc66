"""One run of a load: send every prompt when it is due, and record the times of every answer.

All times are seconds of one clock, which is `time.perf_counter` outside tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deployments.cli.bench.client import NO_TOKENS, AnswerError, Chunk, HttpClient, Prompt, Usage
from deployments.cli.bench.speculation import SpecCounts, counts_of_page

Report = Callable[[int, float], None]
"""Called with (requests ended, output tokens per second so far)."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """Results of a run."""

    records: tuple[RequestRecord, ...]
    """Records in the order of the prompts."""
    duration_s: float
    metrics_pages: tuple[str, str] = ("", "")
    """/metrics before and after the run. Empty if the server has none."""

    @property
    def speculation(self) -> SpecCounts | None:
        """Totals of the answers, else of the server meanwhile. None if it reports neither."""
        of_answers = [one.speculation for one in self.records if one.speculation is not None]
        if of_answers:
            return sum(of_answers, SpecCounts())
        before, after = map(counts_of_page, self.metrics_pages)
        return None if before is None or after is None else after - before

    @property
    def failures(self) -> Counter[str]:
        """Number of failed requests by message."""
        return Counter(record.error for record in self.records if record.error is not None)


async def run_load(
    client: HttpClient,
    prompts: Sequence[Prompt],
    *,
    timeout_s: float,
    arrivals_s: Sequence[float] | None = None,
    max_concurrency: int | None = None,
    report: Report | None = None,
) -> LoadRun:
    """Send all requests and wait for every answer, at most `timeout_s` after the last request.

    Prompts arrive `arrivals_s` after the start, or all at once. A request that waits for
    `max_concurrency` is not sent yet, so its latencies begin later.
    """
    seats = asyncio.Semaphore(max_concurrency or max(len(prompts), 1))
    num_ended = num_tokens = 0

    async def ask(prompt: Prompt) -> RequestRecord:
        nonlocal num_ended, num_tokens
        async with seats:
            record = await record_request(client.stream(prompt), timeout_s=timeout_s)
        num_ended += 1
        num_tokens += record.usage.num_output
        if report is not None:
            report(num_ended, num_tokens / (record.end_s - started_s))
        return record

    before = await client.metrics_page()
    started_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for prompt, due_s in zip(prompts, arrivals_s or [0.0] * len(prompts), strict=True):
            wait_s = started_s + due_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            tasks.append(group.create_task(ask(prompt)))
    duration_s = time.perf_counter() - started_s
    return LoadRun(
        records=tuple(task.result() for task in tasks),
        duration_s=duration_s,
        metrics_pages=(before, await client.metrics_page()),
    )


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
            raise AnswerError(
                "the stream reported no usage: the server must support stream_options.include_usage"
            )
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
    chunks: AsyncGenerator[Chunk],
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> RequestRecord:
    """Read an answer to its end. Any failure becomes the record's error, so that the run
    continues."""
    timeline = _Timeline(clock())
    try:
        async with asyncio.timeout(timeout_s) as limit, contextlib.aclosing(chunks):
            async for chunk in chunks:
                timeline.note(chunk, clock())
        return timeline.finished()
    except AnswerError as error:
        why = str(error)
    except Exception as error:
        name = type(error).__name__
        why = f"{name}: {error}" if str(error) else name
        if isinstance(error, TimeoutError) and limit.expired():
            why = f"no end within {timeout_s:g} s"
    return RequestRecord(start_s=timeline.start_s, end_s=clock(), error=why)
