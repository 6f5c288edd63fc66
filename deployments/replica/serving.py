"""Target and draft replicas: Serve places them, restarts them and asks for their health.

They take no Serve requests: work comes over the stream that they open to the coordinator. Classes
are undecorated; app.py turns them into deployments.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from ray import serve

from deployments.config import ServiceConfig
from deployments.coordinator.actor import CoordinatorSpec, resolve, signals_of
from deployments.deployment_names import Part
from deployments.replica.work_loop import WorkLoop
from deployments.telemetry.lease_spans import LeaseSpans
from deployments.telemetry.logs import begin_replica_logs
from deployments.telemetry.process import ProcessName
from deployments.telemetry.tracing import begin_tracing
from deployments.tls.check import check_tls
from specdec_core.leases import Role


class _PoolReplica:
    """One model in one process. torch runs in one thread, the loop stays free for health checks."""

    role: ClassVar[Role]

    def __init__(self, config: ServiceConfig, coordinator: CoordinatorSpec) -> None:
        from deployments.replica.model_host import host_model

        check_tls(config.coordinator_tls)
        replica_id = f"{self.role}-{serve.get_replica_context().replica_id.unique_id}"
        process = ProcessName(role=Part(self.role), id=replica_id, cell=coordinator.cell)
        begin_replica_logs(process, config.log_format)
        self._tracing = begin_tracing(process)
        self._coordinator = coordinator
        self._graceful_shutdown_s = config.graceful_shutdown_s
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        num_threads = config.threads_per_replica(os.cpu_count() or 1)
        hosted = executor.submit(host_model, config, self.role, num_threads).result()
        self._loop = WorkLoop(
            hosted.runner,
            describe=lambda incarnation: hosted.describe(replica_id, incarnation),
            resolve=lambda: resolve(coordinator),
            executor=executor,
            spans=LeaseSpans(self._tracing.tracer),
        )
        self._running = asyncio.get_running_loop().create_task(self._loop.run())

    def check_health(self) -> None:
        """Raises when leases cannot be run any more: Serve then replaces the replica."""
        if self._loop.failure is not None:
            raise RuntimeError("running a lease failed") from self._loop.failure
        if self._running.done():
            raise RuntimeError("the work loop has ended")
        if self._loop.is_stuck:
            raise RuntimeError("a lease does not end")

    async def pid(self) -> int:
        return os.getpid()

    async def __del__(self) -> None:
        """Serve awaits this at a graceful stop: the sequences move before the process ends."""
        if not self._running.done():
            await self._loop.drain(self._graceful_shutdown_s)
            self._running.cancel()
        await self._tracing.close()


class TargetReplica(_PoolReplica):
    """Scores proposals and chooses."""

    role = Role.TARGET

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the pool says of the whole cell: drafts may be none, and take no requests either."""
        return await signals_of(self._coordinator)


class DraftReplica(_PoolReplica):
    """Proposes."""

    role = Role.DRAFT
