"""Target and draft replicas, which Serve places, restarts and asks for their health.

They take no Serve requests. Work comes over the stream that they open to the coordinator. Classes
are undecorated; app.py turns them into deployments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ray import serve

from deployments.config.service import ServiceConfig
from deployments.config.tls_check import check_tls
from deployments.coordinator.actor import (
    Resolver,
    signals_of,
    targets_begun,
    tell_target_begins,
)
from deployments.coordinator.spec import CoordinatorSpec
from deployments.names import Part
from deployments.observability.logs import begin_replica_logs
from deployments.observability.process import ProcessName
from deployments.observability.tracing.lease_spans import LeaseSpans
from deployments.observability.tracing.provider import begin_tracing
from deployments.replica.start_stages import report_stage
from deployments.replica.work_loop import WorkLoop
from specdec_core.messages import Role

if TYPE_CHECKING:
    from deployments.replica.model_host import HostedModel
    from specdec_core.worker.ranks import RankGroup


class _PoolReplica:
    """One model in one process. torch runs in one thread, so the loop stays free for health checks.

    Serve counts a replica as started when its first health check has passed, which waits for the
    model. The constructor does not wait. A controller that restarts after its own death ends every
    replica whose constructor has not returned. The model would then be loaded twice.
    """

    role: ClassVar[Role]

    def __init__(self, config: ServiceConfig, coordinator: CoordinatorSpec) -> None:
        check_tls(config.tls.files)
        self._id = f"{self.role}-{serve.get_replica_context().replica_id.unique_id}"
        process = ProcessName(role=Part(self.role), id=self._id, cell=coordinator.cell)
        begin_replica_logs(process, config.telemetry.log_format)
        self._tracing = begin_tracing(process)
        self._coordinator = coordinator
        self._graceful_shutdown_s = config.graceful_shutdown_s
        self._starting = asyncio.get_running_loop().create_task(self._start(config))

    async def _start(self, config: ServiceConfig) -> _Work:
        if self.role is Role.TARGET:
            await tell_target_begins(self._coordinator)
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        loop = asyncio.get_running_loop()
        on_stage = partial(report_stage, self._coordinator.application, self._id)
        hosted = await loop.run_in_executor(executor, _load, config, self.role, on_stage)
        work = WorkLoop(
            hosted.runner,
            describe=lambda incarnation: hosted.describe(self._id, incarnation),
            resolve=Resolver(self._coordinator).resolve,
            executor=executor,
            spans=LeaseSpans(self._tracing.tracer),
        )
        return _Work(work, loop.create_task(work.run()), hosted.ranks)

    async def check_health(self) -> None:
        """Raise if leases cannot be run, or no longer. Serve then replaces the replica."""
        work = await asyncio.shield(self._starting)
        if work.loop.failure is not None:
            raise RuntimeError("running a lease failed") from work.loop.failure
        if work.ranks is not None:
            work.ranks.check()
        if work.running.done():
            raise RuntimeError("the work loop has ended")
        if work.loop.is_stuck:
            raise RuntimeError("a lease has run for too long")

    async def pid(self) -> int:
        return os.getpid()

    async def __del__(self) -> None:
        """Move the sequences before the process ends. Serve awaits this at a graceful stop."""
        if not self._starting.cancel() and self._starting.exception() is None:
            begun = await self._num_begun()
            await self._starting.result().end(
                self._graceful_shutdown_s, lambda: self._has_begun_since(begun)
            )
        await self._tracing.close()

    async def _num_begun(self) -> int:
        """Return the number of targets that have begun to load."""
        return sum((await targets_begun(self._coordinator)).values())

    async def _has_begun_since(self, begun: int) -> bool:
        return await self._num_begun() > begun


class _Work(NamedTuple):
    """The work of a replica after its model is loaded."""

    loop: WorkLoop
    running: asyncio.Task[None]
    ranks: RankGroup | None

    async def end(self, timeout_s: float, is_awaited: Callable[[], Awaitable[bool]]) -> None:
        if not self.running.done():
            await self.loop.drain(timeout_s, is_awaited)
            self.running.cancel()
        if self.ranks is not None:
            self.ranks.close()


def _load(config: ServiceConfig, role: Role, on_stage: Callable[[str], None]) -> HostedModel:
    on_stage("importing PyTorch")
    from deployments.replica.model_host import host_model

    hosted = host_model(config, role, config.threads_per_replica(os.cpu_count() or 1), on_stage)
    on_stage("loaded")
    return hosted


class TargetReplica(_PoolReplica):
    """Scores proposals and chooses tokens."""

    role = Role.TARGET

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the scheduler's signals of the whole cell, also on behalf of the drafts.

        A cell may have no drafts, and drafts take no requests either.
        """
        return await signals_of(self._coordinator)


class DraftReplica(_PoolReplica):
    """Proposes tokens."""

    role = Role.DRAFT
