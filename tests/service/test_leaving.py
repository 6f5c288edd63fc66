"""A service that is replaced under load: clients get their answers, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from benchmarks.chaos.asked import Asked, mixed
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.load import Clients, Load
from benchmarks.chaos.run import clients_of
from benchmarks.harness.processes import Kind, Pids, below, pids_by_kind, title_of
from benchmarks.harness.starting import SERVE, ServerProcess, serve_variables, service
from deployments.config import ServiceConfig
from deployments.generate.prompt_file import read_prompt_file
from tests.conftest import StartedAlone
from tests.service.own_service import PROMPTS, own_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(780)]

NUM_REQUESTS = 12
LIMIT_S = 200.0
REPLICAS = (Kind.TARGET, Kind.DRAFT, Kind.INGRESS)
OURS = (*REPLICAS, Kind.COORDINATOR)


def asked() -> list[Asked]:
    return mixed(read_prompt_file(PROMPTS), NUM_REQUESTS, max_tokens=700)


def ended(number: int) -> None:
    pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.2)


async def until_serving(clients: Clients) -> None:
    """Until a target and a draft have registered."""
    async with asyncio.timeout(LIMIT_S):
        while (status := await clients.grpc.status(5)) is None or len(status.replicas) < 2:
            await asyncio.sleep(0.2)


def num_pieces(load: Load) -> int:
    """That have come."""
    return sum(len(answer.attempts[-1].arrivals_s) for answer in load.answers)


def assert_undisturbed(load: Load, calm: Load) -> None:
    """Every answer at the first attempt, and the same."""
    assert [a.failure for answer in load.answers for a in answer.attempts if a.failure] == []
    outputs = [
        {answer.asked.number: answer.output for answer in run.answers} for run in (calm, load)
    ]
    assert outputs[0] == outputs[1]


def gcs_address(pid: int) -> str:
    """Where the Ray is that a service has started."""
    for child in below(pid):
        if found := re.search(r"--gcs-address=(\S+)", title_of(child)):
            return found.group(1)
    pytest.fail("no process names the address")


@contextlib.contextmanager
def redeployed(config: ServiceConfig, address: str) -> Iterator[None]:
    """`specdec serve` with other settings on the Ray that runs."""
    # As on any cluster whose Ray asks for a token.
    ray = {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token"}
    process = ServerProcess(SERVE, serve_variables(config) | ray)
    try:
        yield
    finally:
        process.end(120)


@pytest.mark.parametrize("is_repeated", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_redeploys_lose_nothing_and_the_end_leaves_no_actor(
    tmp_path: Path, started_alone: StartedAlone, is_repeated: bool
) -> None:
    # Two services start and serve side by side: an answer may take a minute.
    settings = own_config(tmp_path).model_copy(update={"graceful_shutdown_s": LIMIT_S})
    others = [settings.model_copy(update={"spec_tokens": number}) for number in (2, 3)]
    assert len({config.version() for config in (settings, *others)}) == 3
    with started_alone(service(settings)) as process, contextlib.ExitStack() as ended_first:
        find = partial(pids_by_kind, process.pid)
        whole = find()

        def redeploy(config: ServiceConfig) -> Pids:
            """The processes before it."""
            before = find()
            ended_first.enter_context(redeployed(config, gcs_address(process.pid)))
            return before

        def has_begun(before: Pids) -> bool:
            pids = find()
            return any({*pids[kind]} - {*before[kind]} for kind in OURS)

        def are_replaced(before: Pids, kinds: Sequence[Kind]) -> bool:
            """Nobody of the old ones lives, and as many new ones do."""
            pids = find()
            return all(
                len(pids[kind]) == len(whole[kind]) and not {*pids[kind]} & {*before[kind]}
                for kind in kinds
            )

        async def scenario() -> None:
            async with clients_of(settings) as clients:
                calm, under_way, late = (Load(clients, NUM_REQUESTS, ended) for _ in range(3))
                await calm.run(asked())
                running = asyncio.create_task(under_way.run(asked()))
                await until(lambda: num_pieces(under_way) > 20)
                before = redeploy(others[0])
                await running
                assert_undisturbed(under_way, calm)
                await until(lambda: are_replaced(before, REPLICAS))
                await until_serving(clients)
                if not is_repeated:
                    return
                # This time nobody waits for the last target when it is asked to leave.
                before = redeploy(others[1])
                await until(lambda: has_begun(before))
                await late.run(asked())
                assert_undisturbed(late, calm)
                await until(lambda: are_replaced(before, OURS))

        asyncio.run(scenario())
        ended_first.close()
        asyncio.run(until(lambda: not any(find()[kind] for kind in OURS)))
        alive = process.members()
    assert left_of(alive) == []
