"""CPU time of the coordinator by lease, row and event: what `specdec simulate capacity` charges.

The coordinator has a process of its own, with the event loop and gRPC's settings that the service
gives it; replicas that answer after a while without a model, and an ingress, talk to it over gRPC
from this one. The line through plain rounds of two sizes is charged: a lease, with its part of the
message to the ingress, and so much for each row and its event. Rounds with a draft model, of two
leases, are measured beside it.

    python -m benchmarks.coordinator_cost --output benchmarks/results/coordinator_cost.json
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import linear_regression, median
from typing import Annotated, Any
from unittest.mock import patch

import psutil
import typer
import uvloop
from rich.console import Console

from benchmarks.harness.commands import write_json
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.server import process_settings, start_server
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.replica.work_loop import WorkLoop
from deployments.runtime.garbage import look_seldom
from deployments.simulation.model_replica import ModelReplica
from deployments.wire.endpoint import Endpoint
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import GroupLease, GroupResult, Occupancy, ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler

_GROUPS = (8, 32)
_METHODS = (SpecMethod.NONE, SpecMethod.DRAFT_MODEL)
_PASS_S = 0.025
_STEP_S = 0.008
_WARM_UP_S = 3.0
_MAX_LEN = 1 << 20
_PROCESSES = multiprocessing.get_context("spawn")


class IdleReplica:
    """Takes its time and no processor."""

    def __init__(self, role: Role, name: str) -> None:
        self._name, self._role = name, role
        self._model = ModelReplica(self.info(0), agreement=0.7)
        self.num_leases = 0

    def info(self, incarnation: int) -> ReplicaInfo:
        return ReplicaInfo(
            replica_id=self._name,
            role=self._role,
            incarnation=incarnation,
            num_blocks=_MAX_LEN,
            kv_cache_spec=FullAttentionSpec(16),
            max_model_len=_MAX_LEN,
            vocab_size=50_000,
            model_digest="none",
        )

    @property
    def occupancy(self) -> Occupancy:
        return self._model.occupancy

    def execute(self, lease: GroupLease) -> GroupResult:
        time.sleep(_PASS_S if self._role is Role.TARGET else _STEP_S)
        self.num_leases += 1
        return self._model.execute(lease, _PASS_S)

    def free(self, sequence_ids: Iterable[int]) -> None:
        self._model.free(sequence_ids)

    def reset(self) -> None:
        self._model.reset()


def _serve(group: int, method: SpecMethod, told: Connection) -> None:
    """The coordinator's process."""

    async def run() -> None:
        look_seldom()
        config = SchedulerConfig(
            max_group_size=group,
            window=group,
            speculation=SpeculationConfig(
                method=method, num_draft_tokens=4, k_policy=KPolicyName.FIXED
            ),
        )
        driver = SchedulerDriver(Scheduler(config, epoch=1), epoch=1)
        _, endpoint = await start_server(driver, "127.0.0.1")
        told.send((endpoint.address, endpoint.token))
        await driver.run()

    uvloop.run(run())  # Ray gives it to every asynchronous actor


async def _measure(
    endpoint: Endpoint, pid: int, group: int, targets: int, seconds: float, drafts: int
) -> float:
    """CPU microseconds of the coordinator for each lease of a target."""

    async def resolve() -> Endpoint:
        return endpoint

    replicas = [IdleReplica(Role.TARGET, f"t{i}") for i in range(targets)]
    replicas += [IdleReplica(Role.DRAFT, f"d{i}") for i in range(drafts)]
    client = SchedulerClient(resolve)
    tasks = [asyncio.create_task(client.run())]
    for replica in replicas:
        executor = ThreadPoolExecutor(1)
        loop = WorkLoop(replica, describe=replica.info, resolve=resolve, executor=executor)
        tasks.append(asyncio.create_task(loop.run()))
    await asyncio.sleep(1.0)
    for place in range(targets * group):
        tasks.append(asyncio.create_task(_read(client, place)))
    await asyncio.sleep(_WARM_UP_S)
    process = psutil.Process(pid)
    before, num_before = process.cpu_times(), _num_verified(replicas, targets)
    await asyncio.sleep(seconds)
    after, num_leases = process.cpu_times(), _num_verified(replicas, targets) - num_before
    for task in tasks:
        task.cancel()
    spent = after.user + after.system - before.user - before.system
    return 1e6 * spent / num_leases


def _num_verified(replicas: list[IdleReplica], targets: int) -> int:
    return sum(replica.num_leases for replica in replicas[:targets])


async def _read(client: SchedulerClient, place: int) -> None:
    params = SamplingParams(max_tokens=100_000, seed=place)
    prompt = tuple((7 * place + i) % 50_000 for i in range(64))
    request = Request(request_id=f"r{place}", prompt_token_ids=prompt, params=params)
    async for _ in client.generate(request):
        pass


def measure(group: int, method: SpecMethod, targets: int, seconds: float) -> float:
    here, there = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_serve, args=(group, method, there))
    with patch.dict(os.environ, process_settings()):
        process.start()
    try:
        assert process.pid is not None, "it runs"
        address, token = here.recv()
        drafts = targets if method is SpecMethod.DRAFT_MODEL else 0
        endpoint = Endpoint(address=address, token=token)
        return asyncio.run(_measure(endpoint, process.pid, group, targets, seconds, drafts))
    finally:
        process.kill()


def main(
    targets: int = 4,
    seconds: float = 6.0,
    repeats: int = 3,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Print what is charged."""
    cells: list[dict[str, Any]] = []
    for method in _METHODS:
        for group in _GROUPS:
            runs = [measure(group, method, targets, seconds) for _ in range(repeats)]
            cells.append({"method": method.value, "group": group, "round_us": median(runs)})
            Console().print(cells[-1], runs)
    plain_us = [cell["round_us"] for cell in cells if cell["method"] == SpecMethod.NONE.value]
    line = linear_regression(_GROUPS, plain_us)
    costs = {"row_us": line.slope, "message_us": line.intercept, "event_us": 0.0}
    Console().print(costs)
    write_json({"targets": targets, "cells": cells, "charged": costs}, output)


if __name__ == "__main__":
    typer.run(main)
