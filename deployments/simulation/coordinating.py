"""A coordinator as a process: the service's driver and servicer on a simulated loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.service import CoordinatorServicer
from deployments.coordinator.streams import IngressOutbox
from deployments.simulation.calls import Server
from deployments.simulation.network import Host, Network, Stream
from deployments.simulation.timeline import Timeline
from deployments.simulation.watched_pool import WatchedPool, Watcher
from deployments.wire.liveness import SILENCE_S
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.config import SchedulerConfig
from specdec_core.messages import GroupResult
from specdec_core.scheduler import Scheduler

_STEP_S = 0.000001
"""Seconds per event-loop iteration if its work costs nothing, or is charged separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorCosts:
    """Seconds of the coordinator's one core. All 0 means that it is arbitrarily fast."""

    message_s: float = 0.0
    """Cost of a lease and its result, without their rows."""
    row_s: float = 0.0
    event_s: float = 0.0
    """Cost of an event of one request to its ingress."""


class Inspector(Watcher, Protocol):
    """Observer of one coordinator. Its methods raise Violation."""

    def began(self) -> None:
        """A life of the coordinator begins, without any requests or replicas."""
        ...

    def aborted(self, request_id: str) -> None:
        """An ingress has aborted a request."""
        ...

    def delivered(self, message: pb.GenerateDown) -> None:
        """A message with events was written to an ingress."""
        ...

    def sent(self, stream: Stream) -> None:
        """A command was written to a replica's stream."""
        ...

    def answered(self, replica: ConnectedReplica, result: GroupResult) -> None:
        """A replica's result was read and passed to the scheduler."""
        ...

    def decided(self, driver: SchedulerDriver) -> None:
        """The scheduler has decided, and its commands wait to be written."""
        ...


class CoordinatorProcess(Host):
    """A coordinator that may live several times, each time with a new epoch and scheduler."""

    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        name: str,
        config: SchedulerConfig,
        *,
        new_epoch: Callable[[], int],
        inspector: Inspector | None = None,
        audit_share: float = 0.0,
        silence_s: float = SILENCE_S,
        step_s: float = _STEP_S,
        costs: CoordinatorCosts | None = None,
    ) -> None:
        super().__init__(timeline, name, step_s)
        self.driver: SchedulerDriver
        self.inspector = inspector
        self.costs = costs or CoordinatorCosts()
        self._network = network
        self._config = config
        self._new_epoch = new_epoch
        self.audit_share = audit_share
        self._silence_s = silence_s
        self.audit_ids = count()
        self._server: Server

    def main(self) -> None:
        epoch = self._new_epoch()
        self.driver = _WatchedDriver(self, self._new_pool(epoch), epoch)
        self._server = Server(wrote=self._wrote)
        servicer = CoordinatorServicer(self.driver, silence_s=self._silence_s)
        pb_grpc.add_CoordinatorServiceServicer_to_server(servicer, self._server)
        self.loop.create_task(self._run())

    def crash(self) -> None:
        super().crash()
        self._network.died(self)

    def accept(self, stream: Stream) -> None:
        self.loop.call_soon(self._server.accept, stream)

    async def _run(self) -> None:
        try:
            await self.driver.run()
        except Exception as error:
            self.uncaught(error)

    def _new_pool(self, epoch: int) -> Scheduler:
        if self.inspector is None:
            return Scheduler(self._config, epoch=epoch)
        self.inspector.began()
        return WatchedPool(self._config, epoch=epoch, watcher=self.inspector)

    def _wrote(self, stream: Stream, message: Any) -> None:
        is_news = isinstance(message, pb.GenerateDown)
        if is_news:
            self.spend(self.costs.event_s * len(message.events))
        if self.inspector is not None:
            with self.timeline.watched():
                if is_news:
                    self.inspector.delivered(message)
                else:
                    self.inspector.sent(stream)


class _WatchedDriver(SchedulerDriver):
    """Adds nothing to what the driver does."""

    def __init__(self, process: CoordinatorProcess, scheduler: Scheduler, epoch: int) -> None:
        super().__init__(
            scheduler,
            epoch=epoch,
            audit_share=process.audit_share,
            new_replay_id=lambda: f"audit-{next(process.audit_ids)}",
            clock=process.clock,
        )
        self._process = process

    def abort(self, outbox: IngressOutbox, request_id: str) -> None:
        super().abort(outbox, request_id)
        if self._process.inspector is not None:
            self._process.inspector.aborted(request_id)

    def on_result(
        self,
        replica: ConnectedReplica,
        result: GroupResult,
        occupancy: pb.Occupancy,
        held_s: float = 0.0,
    ) -> None:
        costs = self._process.costs
        self._process.spend(costs.message_s + costs.row_s * len(result.rows))
        super().on_result(replica, result, occupancy, held_s)
        if self._process.inspector is not None:
            with self._process.timeline.watched():
                self._process.inspector.answered(replica, result)

    def _send_commands(self) -> None:
        super()._send_commands()
        if self._process.inspector is not None and self.failure is None:
            with self._process.timeline.watched():
                self._process.inspector.decided(self)
