"""One run of a load: send every prompt when it is due and record every answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deployments.cli.bench.client import Client
from deployments.cli.bench.prompts import Prompt
from deployments.cli.bench.records import RequestRecord, record_request
from deployments.cli.bench.speculation import SpecCounts
from deployments.cli.bench.stage_figures import StageFigures, stage_figures

Report = Callable[[int, float], None]
"""Called with (requests ended, output tokens per second so far)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of a run, and the times at which they are sent."""

    prompts: Sequence[Prompt]
    arrivals_s: Sequence[float]
    """Seconds from the start to each prompt's arrival."""
    max_concurrency: int | None
    """Maximum of concurrent requests. None means no limit. A request that waits for the limit is
    not sent yet, so its latencies begin later."""
    timeout_s: float
    """Maximum seconds of one request."""
    is_salted: bool = False
    """Whether each run has its own cache salt, so that none finds the cache of an earlier one."""

    def for_one_run(self) -> Load:
        """Return the load with a cache salt that no other run has, if it is salted."""
        if not self.is_salted:
            return self
        salt = uuid.uuid4().hex
        return replace(self, prompts=[replace(one, cache_salt=salt) for one in self.prompts])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """Results of a run."""

    records: tuple[RequestRecord, ...]
    """Records in the order of the prompts."""
    duration_s: float
    speculation: SpecCounts | None
    """Totals over all requests. None if the server does not report them."""
    stages: StageFigures | None
    """Stages of the server during the run. None if the server does not report them."""

    @property
    def num_completed(self) -> int:
        return sum(record.error is None for record in self.records)

    @property
    def num_output(self) -> int:
        """Output tokens of all answers, failed ones included."""
        return sum(record.usage.num_output for record in self.records)

    @property
    def failures(self) -> Counter[str]:
        """Number of failed requests by message."""
        return Counter(record.error for record in self.records if record.error is not None)


async def run_load(client: Client, load: Load, report: Report) -> LoadRun:
    """Send all requests and wait for every answer, at most `timeout_s` after the last request."""
    before = await client.totals()
    started = time.perf_counter()
    records = await _Sending(client, load, report).run(started)
    duration_s = time.perf_counter() - started
    after = await client.totals()
    told = [record.speculation for record in records if record.speculation is not None]
    speculation = sum(told, SpecCounts()) if told else None
    if speculation is None and before.speculation is not None and after.speculation is not None:
        speculation = after.speculation - before.speculation
    stages = None
    if before.stages is not None and after.stages is not None:
        stages = stage_figures(before.stages, after.stages)
    return LoadRun(
        records=tuple(records), duration_s=duration_s, speculation=speculation, stages=stages
    )


class _Sending:
    """State of a run in progress."""

    def __init__(self, client: Client, load: Load, report: Report) -> None:
        self._client = client
        self._load = load
        self._report = report
        self._room: contextlib.AbstractAsyncContextManager[object] = (
            contextlib.nullcontext()
            if load.max_concurrency is None
            else asyncio.Semaphore(load.max_concurrency)
        )
        self._num_ended = 0
        self._num_tokens = 0

    async def run(self, started_s: float) -> list[RequestRecord]:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for prompt, due_s in zip(self._load.prompts, self._load.arrivals_s, strict=True):
                wait_s = started_s + due_s - time.perf_counter()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                tasks.append(group.create_task(self._ask(prompt, started_s)))
        return [task.result() for task in tasks]

    async def _ask(self, prompt: Prompt, started_s: float) -> RequestRecord:
        async with self._room:
            record = await record_request(
                self._client.stream(prompt), timeout_s=self._load.timeout_s
            )
        self._num_ended += 1
        self._num_tokens += record.usage.num_output
        self._report(self._num_ended, self._num_tokens / (record.end_s - started_s))
        return record
