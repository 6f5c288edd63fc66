"""A service of its own while every kind of process is killed and stopped once, and is then ended
under load: no byte differs, nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from benchmarks.chaos.asked import mixed
from benchmarks.chaos.faults import CYCLE
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.load import Clients, Load
from benchmarks.chaos.run import Plan, clients_of, disturb
from benchmarks.harness.starting import ServerProcess, service
from deployments.config import ServiceConfig
from deployments.generate.prompt_file import read_prompt_file
from tests.conftest import StartedAlone
from tests.service.own_service import PROMPTS, own_config
from tests.service.test_leaving import (
    LIMIT_S,
    NUM_REQUESTS,
    asked,
    assert_undisturbed,
    ended,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]


@dataclass(frozen=True)
class Running:
    settings: ServiceConfig
    process: ServerProcess


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, started_alone: StartedAlone
) -> Iterator[Running]:
    """The last test ends it."""
    settings = own_config(tmp_path_factory.mktemp("own"))
    with started_alone(service(settings)) as process:
        yield Running(settings, process)


def test_whoever_dies_or_hangs_every_answer_is_that_of_the_undisturbed_run(
    running: Running,
) -> None:
    plan = Plan(
        asked=mixed(read_prompt_file(PROMPTS), 24, max_tokens=96),
        concurrency=8,
        every_s=3.0,
        stop_s=1.0,
        repeats=False,
    )
    run = asyncio.run(disturb(running.settings, plan, running.process.pid))
    result = run.result({}, left=[])
    comparison = result.comparison
    assert comparison.num_answers >= 24
    assert (comparison.differing, comparison.changed) == ((), ())
    assert [one for one in comparison.failed if not one.is_allowed] == []
    assert Counter(recovery.strike.fault for recovery in result.recoveries) == Counter(CYCLE)
    assert result.is_whole
    assert result.held == {}


async def beside(clients: Clients, disturb: Callable[[], Awaitable[None]]) -> None:
    """Ask everything twice; `disturb` while the second answers are under way. They are equal."""
    calm, load = (Load(clients, NUM_REQUESTS, ended) for _ in range(2))
    await calm.run(asked())
    running = asyncio.create_task(load.run(asked()))
    await until(lambda: sum(len(one.attempts[-1].arrivals_s) for one in load.answers) > 20)
    await disturb()
    async with asyncio.timeout(LIMIT_S):
        await running
    assert_undisturbed(load, calm)


def test_after_sigterm_streams_complete_and_no_process_is_left(running: Running) -> None:
    """Not even of those that began behind a fault."""
    processes = running.process.members()

    async def terminate() -> None:
        os.kill(running.process.pid, signal.SIGTERM)

    async def scenario() -> None:
        async with clients_of(running.settings) as clients:
            await beside(clients, terminate)

    asyncio.run(scenario())
    assert running.process.wait(90) == 0
    assert left_of(processes) == []
