"""Services that are replaced or ended under load: clients get their answers, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.run import clients_of
from benchmarks.harness.processes import Pids, pids_by_kind
from benchmarks.harness.starting import service
from deployments.config.service import ServiceConfig
from tests.conftest import StartedAlone
from tests.service.own_service import own_config
from tests.service.replacing import (
    OURS,
    are_replaced,
    asked,
    assert_undisturbed,
    few,
    few_until,
    loaded,
    redeployed,
    under_way,
    until,
    until_serving,
)

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(780)]


def test_redeploys_that_follow_each_other_lose_nothing(
    tmp_path: Path, started_alone: StartedAlone
) -> None:
    settings = own_config(tmp_path)
    others = [settings.replaced(spec_tokens=number) for number in (2, 3)]
    assert len({config.version() for config in (settings, *others)}) == 3
    with started_alone(service(settings)) as process, contextlib.ExitStack() as ended_first:
        pid, whole = process.pid, pids_by_kind(process.pid)

        def redeploy(config: ServiceConfig) -> Pids:
            """The processes before it."""
            before = pids_by_kind(pid)
            ended_first.enter_context(redeployed(config, pid))
            return before

        def has_begun(before: Pids) -> bool:
            now = pids_by_kind(pid)
            return any({*now[kind]} - {*before[kind]} for kind in OURS)

        async def scenario() -> None:
            async with clients_of(settings) as clients:
                calm, calm_few = await loaded(clients, asked), await loaded(clients, few)
                async with under_way(clients, calm):
                    before = redeploy(others[0])
                await few_until(lambda: are_replaced(pid, whole, before), clients, calm_few)
                await until_serving(clients)
                # This time nobody waits for the last target when it is asked to leave.
                before = redeploy(others[1])
                await until(lambda: has_begun(before))
                assert_undisturbed(await loaded(clients, asked), calm)
                await until(lambda: are_replaced(pid, whole, before, OURS))

        asyncio.run(scenario())
        ended_first.close()
        asyncio.run(until(lambda: not any(pids_by_kind(pid)[kind] for kind in OURS)))
        alive = process.members()
    assert left_of(alive) == []


def test_who_started_ray_ends_it_once_its_streams_are_complete(
    tmp_path: Path, started_alone: StartedAlone
) -> None:
    settings = own_config(tmp_path)
    with started_alone(service(settings)) as process:
        alive = process.members()

        async def scenario() -> None:
            async with clients_of(settings) as clients:
                calm = await loaded(clients, asked)
                async with under_way(clients, calm):
                    os.kill(process.pid, signal.SIGTERM)

        asyncio.run(scenario())
        assert process.wait(90) == 0
    assert left_of(alive) == []
