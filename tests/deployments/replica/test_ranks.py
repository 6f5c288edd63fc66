"""A replica of two ranks: it answers as one process does, and it fails as one."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch.distributed as dist

from deployments.replica.model_host import follow, host_model
from specdec_core import AlgorithmName, Engine, Request, SamplingParams
from specdec_core.config import DType, Numerics
from specdec_core.errors import RankError
from specdec_core.loading.loader import LoadConfig
from specdec_core.messages import Role
from specdec_core.worker.ranks import RankGroup
from tests.deployments.cell import Cell, cell
from tests.deployments.coordinator.test_cell import collect
from tests.deployments.hosted_target import HostedTarget, tiny_config
from tests.service.tiny_folder import save_tiny_llama

REQUESTS = [
    Request(
        request_id=f"r{number}",
        prompt_token_ids=tuple(range(3 + number, 20 + 3 * number)) * 2,
        params=SamplingParams(
            max_tokens=40, temperature=0.8 * (number % 2), seed=number, ignore_eos=True
        ),
    )
    for number in range(6)
]
"""Their prompts repeat themselves, so that tokens are drafted, accepted and rejected."""
_PROCESSES = multiprocessing.get_context("forkserver")


def second_rank(folder: Path, store: Path) -> None:
    """The other process."""
    group = RankGroup(1, 2, dist.FileStore(str(store), 2))
    follow(tiny_config(folder), Role.TARGET, 1, group)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path)


@pytest.fixture
def second(folder: Path, tmp_path: Path) -> Iterator[BaseProcess]:
    process = _PROCESSES.Process(target=second_rank, args=(folder, tmp_path / "store"))
    process.start()
    yield process
    process.kill()
    process.join()


@contextlib.contextmanager
def two_ranks(folder: Path, second: BaseProcess) -> Iterator[HostedTarget]:
    store = dist.FileStore(str(folder / "store"), 2)
    group = RankGroup(0, 2, store, second.is_alive)
    try:
        yield HostedTarget(host_model(tiny_config(folder), Role.TARGET, 1, ranks=group))
    finally:
        group.close()


def plain(folder: Path) -> list[list[int]]:
    """The answers of plain decoding in one process."""
    load = LoadConfig(
        dtype=DType.FLOAT32, device="cpu", numerics=Numerics.FAST, kv_cache_tokens=4096
    )
    engine = Engine.load(str(folder), load=load, algorithm=AlgorithmName.AUTOREGRESSIVE)
    tokens: dict[str, list[int]] = {one.request_id: [] for one in REQUESTS}
    for event in engine.generate(REQUESTS):
        tokens[event.request_id] += event.token_ids
    return list(tokens.values())


async def answers(parts: Cell) -> list[list[int]]:
    client = parts.clients.get("client") or await parts.client()
    return await asyncio.gather(*(collect(client, one) for one in REQUESTS))


def test_two_ranks_answer_as_one_process(folder: Path, second: BaseProcess) -> None:
    async def scenario(target: HostedTarget) -> None:
        async with cell(tiny_config(folder).scheduler_config()) as parts:
            parts.start_replica("t0", Role.TARGET, target)
            assert await answers(parts) == plain(folder)
            assert await answers(parts) == plain(folder), "with blocks of the prefix cache"

    with two_ranks(folder, second) as target:
        asyncio.run(asyncio.wait_for(scenario(target), 120))
    second.join(timeout=20)
    assert second.exitcode == 0, "rank 0 has ended it"


def test_a_killed_rank_fails_the_replica_and_changes_no_token(
    folder: Path, second: BaseProcess
) -> None:
    async def scenario(target: HostedTarget) -> None:
        async with cell(tiny_config(folder).scheduler_config()) as parts:
            parts.start_replica("t0", Role.TARGET, target)
            running = asyncio.create_task(answers(parts))
            while parts.driver.scheduler.counters().num_sequence_rounds < 20:
                await asyncio.sleep(0.01)
            second.kill()
            parts.start_replica("t1", Role.TARGET, HostedTarget(other))
            assert await running == plain(folder)
            assert isinstance(parts.loops["t0"].failure, RankError)

    other = host_model(tiny_config(folder), Role.TARGET, 1)
    with two_ranks(folder, second) as target:
        asyncio.run(asyncio.wait_for(scenario(target), 120))


def test_a_rank_that_ends_between_passes_is_noticed(folder: Path, second: BaseProcess) -> None:
    store = dist.FileStore(str(folder / "store"), 2)
    group = RankGroup(0, 2, store, second.is_alive)
    group.check()
    second.kill()
    second.join()
    with pytest.raises(RankError, match="has ended"):
        group.check()
    group.close()
