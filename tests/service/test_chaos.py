"""A service of its own while every kind of process is killed and stopped once and a coordinator
hangs; then it is redeployed and ended under load: no byte differs, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.chaos.asked import mixed
from benchmarks.chaos.faults import CYCLE
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.load import Load
from benchmarks.chaos.run import Plan, clients_of, disturb
from benchmarks.harness.processes import Kind, pids_by_kind
from benchmarks.harness.starting import ServerProcess, service
from deployments.cli.generate.prompt_file import read_prompt_file
from deployments.config.service import ServiceConfig
from tests.conftest import StartedAlone
from tests.service.own_service import PROMPTS, own_config
from tests.service.replacing import (
    REPLICAS,
    are_replaced,
    asked,
    few,
    few_until,
    loaded,
    redeployed,
    under_way,
    until,
    until_serving,
)
from tests.service.test_hung import stopped

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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


@pytest.fixture(scope="module")
def calm(running: Running) -> Load:
    """What is asked while something happens, when nothing does."""

    async def scenario() -> Load:
        async with clients_of(running.settings) as clients:
            return await loaded(clients, asked)

    return asyncio.run(scenario())


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


def test_a_coordinator_that_hangs_is_replaced(running: Running, calm: Load) -> None:
    """It is stopped and never goes on: its streams do, behind what they have."""
    pid = running.process.pid
    (hung,) = pids_by_kind(pid)[Kind.COORDINATOR]

    async def scenario() -> None:
        async with clients_of(running.settings) as clients:
            async with under_way(clients, calm):
                os.kill(hung, signal.SIGSTOP)
            await until_serving(clients)

    with stopped() as pids:
        pids.append(hung)
        asyncio.run(scenario())
        assert hung not in pids_by_kind(pid)[Kind.COORDINATOR]


def test_a_redeploy_and_the_end_behind_it_lose_nothing(running: Running, calm: Load) -> None:
    """Behind all those faults. No process is left, not even of those that began behind one."""
    settings, pid = running.settings, running.process.pid
    other = settings.replaced(spec_tokens=2)
    assert other.version() != settings.version()
    whole, earlier = pids_by_kind(pid), running.process.members()

    async def scenario() -> None:
        async with clients_of(settings) as clients:
            calm_few = await loaded(clients, few)
            with contextlib.ExitStack() as deployed:
                async with under_way(clients, calm):
                    second = deployed.enter_context(redeployed(other, pid))
                await few_until(lambda: are_replaced(pid, whole, whole), clients, calm_few)
                await until_serving(clients)
                async with under_way(clients, calm):
                    os.kill(second.pid, signal.SIGTERM)
                assert second.wait(90) == 0
            # The coordinator of the first version ends itself a minute later: test_leaving.py.
            await until(lambda: not any(pids_by_kind(pid)[kind] for kind in REPLICAS))

    asyncio.run(scenario())
    alive = running.process.members()
    os.kill(pid, signal.SIGTERM)
    assert running.process.wait(90) == 0
    assert left_of([*earlier, *alive]) == []
