"""Both runs against a service that is up: undisturbed, then with faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.chaos.answers import Answer
from benchmarks.chaos.asked import Asked
from benchmarks.chaos.faults import CYCLE, Fault, Strike, Striker
from benchmarks.chaos.findings import compare
from benchmarks.chaos.grpc_client import grpc_client
from benchmarks.chaos.http_client import http_client
from benchmarks.chaos.leftovers import held_by_pool, until_whole
from benchmarks.chaos.load import Clients, Load, until
from benchmarks.chaos.recovery import calm_waits, recoveries
from benchmarks.chaos.report import Result
from benchmarks.chaos.watch import Sight, Watch
from benchmarks.harness.processes import pids_by_kind
from deployments.config.service import ServiceConfig

_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked, and what is done meanwhile."""

    asked: list[Asked]
    concurrency: int
    every_s: float | None
    """Seconds between faults; None: by the machine, see `pace_s`."""
    stop_s: float
    cycle: Sequence[Fault] = CYCLE
    repeats: bool = True
    """Whether faults go on until the last answer; else each strikes once."""

    def pace_s(self, longest_s: float) -> float:
        """Seconds between faults where the longest undisturbed answer took `longest_s`.

        A proxy that is killed ends all that is under way, and its clients ask from the start. Where
        a round of all faults is no longer than a target's start and such an answer together, that
        one never comes. A quarter of it leaves twice its time between a proxy's end and the next of
        a target.
        """
        return max(_EVERY_S, longest_s / 4) if self.every_s is None else self.every_s

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "requests": len(self.asked),
            "concurrency": self.concurrency,
            "stop_s": self.stop_s,
            "cycle": [str(fault) for fault in self.cycle],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was seen."""

    plan: Plan
    undisturbed: list[Answer]
    disturbed: list[Answer]
    undisturbed_s: float
    disturbed_s: float
    every_s: float
    strikes: list[Strike]
    sights: list[Sight]
    is_whole: bool
    held: dict[str, int]

    def result(self, settings: dict[str, Any], left: Sequence[str]) -> Result:
        attempts = [attempt for answer in self.disturbed for attempt in answer.attempts]
        found = recoveries(self.strikes, self.sights, attempts)
        return Result(
            settings=settings | self.plan.figures | {"every_s": round(self.every_s, 1)},
            cycle=self.plan.cycle,
            comparison=compare(self.undisturbed, self.disturbed, found),
            recoveries=found,
            undisturbed_s=self.undisturbed_s,
            disturbed_s=self.disturbed_s,
            calm_waits_s=calm_waits([a for answer in self.undisturbed for a in answer.attempts]),
            is_whole=self.is_whole,
            held=self.held,
            left=left,
        )


async def disturb(config: ServiceConfig, plan: Plan, pid: int) -> Run:
    """The same requests twice; in the second run every fault strikes at least once. `pid`: the
    service's first process."""
    find = partial(pids_by_kind, pid)
    async with clients_of(config) as clients:
        with _progress("undisturbed", len(plan.asked)) as (report, _):
            calm = Load(clients, plan.concurrency, report)
            calm_s = await _timed(calm.run(plan.asked))
        assert all(answer.output is not None for answer in calm.answers), "nothing fails by itself"
        watch = Watch(find, clients.grpc)
        whole = await watch.look()
        every_s = plan.pace_s(max(answer.taken_s for answer in calm.answers))
        with _progress("with faults", len(plan.asked)) as (report, tell):
            striker = Striker(
                find,
                every_s=every_s,
                stop_s=plan.stop_s,
                cycle=plan.cycle,
                repeats=plan.repeats,
                report=tell,
            )
            load = Load(clients, plan.concurrency, report)
            asked = until(plan.asked, lambda: striker.is_cycle_complete)
            async with _beside(watch.run()):
                async with _beside(striker.run()):
                    load_s = await _timed(load.run(asked))
                is_whole = await until_whole(watch, whole)
        return Run(
            plan=plan,
            undisturbed=calm.answers,
            disturbed=load.answers,
            undisturbed_s=calm_s,
            disturbed_s=load_s,
            every_s=every_s,
            strikes=striker.strikes,
            sights=watch.sights,
            is_whole=is_whole,
            held=await held_by_pool(clients.grpc),
        )


@contextlib.asynccontextmanager
async def clients_of(config: ServiceConfig) -> AsyncIterator[Clients]:
    """Of both protocols, for a service on this machine."""
    async with http_client(config.port) as http, grpc_client(config.grpc_port) as over_grpc:
        yield Clients(http, over_grpc)


async def _timed(work: Coroutine[Any, Any, None]) -> float:
    began_s = time.monotonic()
    await work
    return time.monotonic() - began_s


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """`work` runs until the body ends; its failure is the body's."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


@contextlib.contextmanager
def _progress(
    name: str, total: int
) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Called with how many have ended, and with what strikes."""
    columns = (TextColumn("{task.description:26}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total)

        began_s = time.monotonic()

        def tell(fault: str) -> None:
            bar.update(task, description=fault)
            since_s, done = time.monotonic() - began_s, bar.tasks[task].completed
            bar.console.print(f"{since_s:6.1f} s {fault} behind {done:g} answers")

        yield lambda done: bar.update(task, completed=done), tell
