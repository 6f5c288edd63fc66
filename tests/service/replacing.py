"""Services that are redeployed or ended under load: what their clients and processes say of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest

from benchmarks.chaos.asked import Asked, mixed
from benchmarks.chaos.load import Clients, Load
from benchmarks.harness.processes import Kind, Pids, below, pids_by_kind, title_of
from benchmarks.harness.starting import SERVE, ServerProcess, serve_variables
from deployments.cli.generate.prompt_file import read_prompt_file
from deployments.config.service import ServiceConfig
from tests.service.own_service import PROMPTS

NUM_REQUESTS = 8
LIMIT_S = 200.0
REPLICAS = (Kind.TARGET, Kind.DRAFT, Kind.INGRESS)
OURS = (*REPLICAS, Kind.COORDINATOR)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.2)


async def until_serving(clients: Clients) -> None:
    """Until a target and a draft have registered."""
    async with asyncio.timeout(LIMIT_S):
        while (status := await clients.grpc.status(5)) is None or len(status.replicas) < 2:
            await asyncio.sleep(0.2)


def asked(num_requests: int = NUM_REQUESTS, max_tokens: int = 500) -> list[Asked]:
    return mixed(read_prompt_file(PROMPTS), num_requests, max_tokens=max_tokens)


def few() -> list[Asked]:
    return asked(4, max_tokens=50)


def new_load(clients: Clients) -> Load:
    return Load(clients, NUM_REQUESTS, lambda number: None)


async def loaded(clients: Clients, what: Callable[[], list[Asked]]) -> Load:
    """Everything was asked, and has its answer."""
    load = new_load(clients)
    await load.run(what())
    return load


async def few_until(condition: Callable[[], bool], clients: Clients, calm: Load) -> None:
    """A few requests a second, all undisturbed, as long as it takes."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            assert_undisturbed(await loaded(clients, few), calm)
            await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def under_way(clients: Clients, calm: Load) -> AsyncIterator[None]:
    """Inside, streams run; behind it all have ended, and are what they were in the calm load."""
    load = new_load(clients)
    running = asyncio.create_task(load.run(asked()))
    await until(lambda: sum(len(one.attempts[-1].arrivals_s) for one in load.answers) > 20)
    yield
    async with asyncio.timeout(LIMIT_S):
        await running
    assert_undisturbed(load, calm)


def assert_undisturbed(load: Load, calm: Load) -> None:
    """Every answer at the first attempt, and the same."""
    assert [a.failure for answer in load.answers for a in answer.attempts if a.failure] == []
    outputs = [
        {answer.asked.number: answer.output for answer in run.answers} for run in (calm, load)
    ]
    assert outputs[0] == outputs[1]


@contextlib.contextmanager
def redeployed(config: ServiceConfig, pid: int) -> Iterator[ServerProcess]:
    """`specdec serve` with other settings on the Ray that the service `pid` has started."""
    # As on any cluster whose Ray asks for a token.
    ray = {"RAY_ADDRESS": gcs_address(pid), "RAY_AUTH_MODE": "token"}
    process = ServerProcess(SERVE, serve_variables(config) | ray)
    try:
        yield process
    finally:
        process.end(120)


def gcs_address(pid: int) -> str:
    """Where the Ray is that a service has started."""
    for child in below(pid):
        if found := re.search(r"--gcs-address=(\S+)", title_of(child)):
            return found.group(1)
    pytest.fail("no process names the address")


def are_replaced(pid: int, whole: Pids, before: Pids, kinds: Sequence[Kind] = REPLICAS) -> bool:
    """Nobody of those before lives, and as many others do as when the service was whole."""
    now = pids_by_kind(pid)
    return all(
        len(now[kind]) == len(whole[kind]) and not {*now[kind]} & {*before[kind]} for kind in kinds
    )
