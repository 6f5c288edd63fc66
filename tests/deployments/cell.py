"""A cell in one process: coordinator, replicas and an ingress over real gRPC, without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.trace import Tracer

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.server import PortLimits, start_server
from deployments.ingress.scheduler_client import ChunkPacing, SchedulerClient
from deployments.observability.tracing.lease_spans import LeaseSpans
from deployments.replica.work_loop import WorkLoop
from deployments.wire.endpoint import Endpoint
from deployments.wire.tls_files import TlsFiles
from specdec_core.config import SchedulerConfig
from specdec_core.messages import Role
from specdec_core.scheduler import Scheduler
from tests.deployments.fake_replica import FakeReplica


class Cell:
    """Starts and kills the parts of a cell; `endpoint` is where the coordinator is now."""

    def __init__(
        self,
        config: SchedulerConfig,
        audit_share: float,
        limits: ClientLimits | None,
        tls: TlsFiles | None,
        port_limits: PortLimits | None,
        tracer: Tracer | None,
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.clock = clock
        self.tracer = tracer
        self.limits = limits
        self.tls = tls
        self.port_limits = port_limits
        self.audit_share = audit_share
        self.endpoint: Endpoint | None = None
        self.driver: SchedulerDriver
        self.replicas: dict[str, FakeReplica] = {}
        self.loops: dict[str, WorkLoop] = {}
        self.clients: dict[str, SchedulerClient] = {}
        self._epoch = 100
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._server: grpc.aio.Server
        self._executor = ThreadPoolExecutor(1)

    async def resolve(self) -> Endpoint:
        if self.endpoint is None:
            raise ConnectionError("no coordinator")
        return self.endpoint

    async def start_coordinator(self) -> None:
        self._epoch += 1
        pool = Scheduler(self.config, epoch=self._epoch)
        self.driver = SchedulerDriver(
            pool,
            epoch=self._epoch,
            audit_share=self.audit_share,
            limits=self.limits,
            tracer=self.tracer,
            clock=self.clock,
        )
        self._server, self.endpoint = await start_server(
            self.driver, "127.0.0.1", tls=self.tls, limits=self.port_limits
        )
        self._tasks["driver"] = asyncio.create_task(self.driver.run())

    async def kill_coordinator(self) -> None:
        self.endpoint = None
        # Not awaited: a killed process does not wait for its streams either.
        self._stopping = asyncio.create_task(self._server.stop(None))
        await self.cancel("driver")

    def start_replica(self, name: str, role: Role, replica: Any = None) -> None:
        """`replica`: a lease runner that also says its `info`, as FakeReplica does."""
        fake = replica or FakeReplica(role)
        self.replicas[name] = fake
        self.loops[name] = WorkLoop(
            fake,
            describe=lambda incarnation: fake.info(name, incarnation),
            resolve=self.resolve,
            executor=self._executor,
            spans=LeaseSpans(self.tracer),
            clock=self.clock,
        )
        self._tasks[name] = asyncio.create_task(self.loops[name].run())

    async def client(
        self, name: str = "client", pace: ChunkPacing | None = None
    ) -> SchedulerClient:
        client = self.clients[name] = SchedulerClient(self.resolve, pace=pace)
        self._tasks[name] = asyncio.create_task(client.run())
        return client

    async def cancel(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task

    async def stop(self) -> None:
        for name in list(self._tasks):
            await self.cancel(name)
        await self._server.stop(None)
        self._executor.shutdown()


@contextlib.asynccontextmanager
async def cell(
    config: SchedulerConfig | None = None,
    *,
    audit_share: float = 0.0,
    limits: ClientLimits | None = None,
    tls: TlsFiles | None = None,
    port_limits: PortLimits | None = None,
    tracer: Tracer | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Cell]:
    """`clock`: the coordinator's and the replicas'."""
    started = Cell(
        config or SchedulerConfig(), audit_share, limits, tls, port_limits, tracer, clock
    )
    await started.start_coordinator()
    try:
        yield started
    finally:
        await started.stop()


@contextlib.asynccontextmanager
async def served(
    config: SchedulerConfig | None = None,
    *,
    target: Any = None,
    has_draft: bool = False,
    **settings: Any,
) -> AsyncIterator[tuple[Cell, SchedulerClient]]:
    """A cell with the target t0, the draft d0 if it has one, and a client; `settings` as `cell`."""
    async with cell(config, **settings) as parts:
        parts.start_replica("t0", Role.TARGET, target)
        if has_draft:
            parts.start_replica("d0", Role.DRAFT)
        yield parts, await parts.client()
