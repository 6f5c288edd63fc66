"""A service that is replaced or ended under load: clients get their answers, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos.answers import Attempt, AttemptError
from benchmarks.chaos.asked import Asked, mixed
from benchmarks.chaos.leftovers import left_of
from benchmarks.chaos.load import Clients, Load
from benchmarks.chaos.processes import Kind, ServiceProcesses
from benchmarks.chaos.run import clients_of
from benchmarks.served import service
from deployments.config import ServiceConfig
from deployments.prompt_file import read_prompt_file
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


async def beside(clients: Clients, disturb: Callable[[], Awaitable[None]]) -> None:
    """Ask everything twice; `disturb` while the second answers are under way. They are equal."""
    calm, load = (Load(clients, NUM_REQUESTS, ended) for _ in range(2))
    await calm.run(asked())
    running = asyncio.create_task(load.run(asked()))
    await until(lambda: sum(len(one.attempts[-1].arrivals_s) for one in load.answers) > 20)
    await disturb()
    async with asyncio.timeout(LIMIT_S):
        await running
    assert [a.failure for answer in load.answers for a in answer.attempts if a.failure] == []
    outputs = [
        {answer.asked.number: answer.output for answer in run.answers} for run in (calm, load)
    ]
    assert outputs[0] == outputs[1]


def test_after_sigterm_streams_complete_and_no_process_is_left(tmp_path: Path) -> None:
    settings = own_config(tmp_path)
    with service(settings) as process:
        processes = ServiceProcesses(process.pid).all()

        async def terminate() -> None:
            process.send_signal(signal.SIGTERM)

        async def scenario() -> None:
            async with clients_of(settings) as clients:
                await beside(clients, terminate)

        asyncio.run(scenario())
        assert process.wait(timeout=90) == 0
        assert left_of(processes) == []


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


async def cut_off(clients: Clients, target: int, end: Callable[[], None]) -> list[Attempt]:
    """A stream of each way that is longer than `end` waits for it, because its target stands."""
    attempts = [Attempt(one) for one in asked() if one.way.is_streamed][:3]
    running = [asyncio.create_task(clients.ask(attempt)) for attempt in attempts]
    await until(lambda: all(attempt.arrivals_s for attempt in attempts))
    os.kill(target, signal.SIGSTOP)
    await asyncio.to_thread(end)
    for attempt, outcome in zip(
        attempts, await asyncio.gather(*running, return_exceptions=True), strict=True
    ):
        assert isinstance(outcome, AttemptError)
        attempt.failure = outcome.failure
    return attempts


def check_cut(attempt: Attempt, whole: Load) -> None:
    """It says to come back, and what it has brought is the beginning of the answer."""
    (output,) = [a.output for a in whole.answers if a.asked.number == attempt.asked.number]
    assert output is not None
    assert attempt.failure is not None
    assert attempt.failure.says_retry
    assert "waited for it no longer" in attempt.failure.message
    assert 0 < len(attempt.token_ids) < len(output.token_ids)
    assert tuple(attempt.token_ids) == output.token_ids[: len(attempt.token_ids)]
    assert output.text.startswith(attempt.text)


def test_a_redeploy_under_load_loses_nothing_and_its_end_leaves_no_actor(tmp_path: Path) -> None:
    settings = own_config(tmp_path)
    other = settings.model_copy(update={"spec_tokens": 2, "graceful_shutdown_s": 2.0})
    assert other.version() != settings.version()
    with service(settings) as process, contextlib.ExitStack() as second:
        processes = ServiceProcesses(process.pid)
        before = processes.by_kind()

        async def redeploy() -> None:
            second.enter_context(redeployed(other, gcs_address(process.pid)))

        async def scenario() -> None:
            async with clients_of(settings) as clients:
                await beside(clients, redeploy)
                await until(lambda: is_replaced(processes.by_kind()))
                again = Load(clients, NUM_REQUESTS, ended)
                await again.run(asked())
                assert all(answer.output is not None for answer in again.answers)
                (target,) = processes.by_kind()[Kind.TARGET]
                for attempt in await cut_off(clients, target, second.close):
                    check_cut(attempt, again)

        def is_replaced(pids: dict[Kind, tuple[int, ...]]) -> bool:
            """Nobody of the old ones lives, and as many new ones do."""
            return all(
                len(pids[kind]) == len(before[kind]) and not {*pids[kind]} & {*before[kind]}
                for kind in OURS
            )

        asyncio.run(scenario())
        asyncio.run(until(lambda: not any(processes.by_kind()[kind] for kind in OURS)))
