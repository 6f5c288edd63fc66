"""A service that is replaced under load: clients get their answers, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos.asked import Asked, mixed
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.load import Load
from benchmarks.chaos.processes import Kind, ServiceProcesses
from benchmarks.chaos.run import clients_of
from benchmarks.served import service
from deployments.config import ServiceConfig
from deployments.generate.prompt_file import read_prompt_file
from tests.conftest import StartedAlone
from tests.service.own_service import PROMPTS, own_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

NUM_REQUESTS = 12
LIMIT_S = 200.0
OURS = (Kind.TARGET, Kind.DRAFT, Kind.COORDINATOR, Kind.INGRESS)


def asked() -> list[Asked]:
    return mixed(read_prompt_file(PROMPTS), NUM_REQUESTS, max_tokens=700)


def ended(number: int) -> None:
    pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.2)


def assert_undisturbed(load: Load, calm: Load) -> None:
    """Every answer at the first attempt, and the same."""
    assert [a.failure for answer in load.answers for a in answer.attempts if a.failure] == []
    outputs = [
        {answer.asked.number: answer.output for answer in run.answers} for run in (calm, load)
    ]
    assert outputs[0] == outputs[1]


def gcs_address(pid: int) -> str:
    """Where the Ray is that a service has started."""
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if found := re.search(r"--gcs-address=(\S+)", " ".join(child.cmdline())):
                return found.group(1)
    pytest.fail("no process names the address")


@contextlib.contextmanager
def redeployed(config: ServiceConfig, address: str) -> Iterator[subprocess.Popen[str]]:
    """`specdec serve` with other settings on the Ray that runs."""
    settings = {f"SPECDEC_{name}".upper(): str(v) for name, v in config.deployable().items()}
    # As on any cluster whose Ray asks for a token.
    settings |= {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token"}
    command = [sys.executable, "-c", "from deployments.cli import main; main()", "serve"]
    process = subprocess.Popen(command, env={**os.environ, **settings}, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)


def test_a_redeploy_under_load_loses_nothing_and_its_end_leaves_no_actor(
    tmp_path: Path, started_alone: StartedAlone
) -> None:
    # Two services start and serve side by side: an answer may take a minute.
    settings = own_config(tmp_path).model_copy(update={"graceful_shutdown_s": LIMIT_S})
    other = settings.model_copy(update={"spec_tokens": 2})
    assert other.version() != settings.version()
    with started_alone(service(settings)) as process, contextlib.ExitStack() as second:
        processes = ServiceProcesses(process.pid)
        before = processes.by_kind()

        def is_replaced(pids: dict[Kind, tuple[int, ...]]) -> bool:
            """Nobody of the old ones lives, and as many new ones do."""
            return all(
                len(pids[kind]) == len(before[kind]) and not {*pids[kind]} & {*before[kind]}
                for kind in OURS
            )

        async def scenario() -> None:
            async with clients_of(settings) as clients:
                calm, load, again = (Load(clients, NUM_REQUESTS, ended) for _ in range(3))
                await calm.run(asked())
                running = asyncio.create_task(load.run(asked()))
                await until(lambda: sum(len(a.attempts[-1].arrivals_s) for a in load.answers) > 20)
                second.enter_context(redeployed(other, gcs_address(process.pid)))
                await running
                await until(lambda: is_replaced(processes.by_kind()))
                await again.run(asked())
                assert_undisturbed(load, calm)
                assert_undisturbed(again, calm)

        asyncio.run(scenario())
        second.close()
        asyncio.run(until(lambda: not any(processes.by_kind()[kind] for kind in OURS)))
        alive = processes.all()
    assert left_of(alive) == []
