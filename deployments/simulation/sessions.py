"""The server's side of streams: what coordinator/service.py does with messages, without gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deployments.coordinator.connected import ConnectedReplica
from deployments.coordinator.outbox import Flush, IngressOutbox
from deployments.simulation.messages import (
    Beat,
    Drain,
    GenerateUp,
    Heartbeat,
    Registered,
    ResetDone,
    Submit,
    WorkUp,
)
from deployments.simulation.network import Stream
from specdec_core.errors import SpecdecError
from specdec_core.leases import GroupResult, ReplicaInfo
from specdec_core.pool import SendLease

if TYPE_CHECKING:
    from deployments.simulation.coordinator import CoordinatorProcess

_MOST_FLUSHES = 2
"""Messages that an ingress has not read before its stream is full."""
_MOST_COMMANDS = 4
"""The same of a replica, which is sent what came together at once."""


class IngressSession:
    """The server's side of an ingress's stream."""

    def __init__(self, coordinator: CoordinatorProcess, stream: Stream) -> None:
        self.outbox: IngressOutbox = coordinator.driver.attach()
        self.has_news = self.outbox.has_news
        self._coordinator = coordinator
        self._stream = stream
        self._beating = coordinator.ticker(self._beat)

    def hear(self, message: GenerateUp) -> None:
        driver = self._coordinator.driver
        if isinstance(message, Submit):
            driver.submit(self.outbox, message.request, resume=message.resume)
        else:
            driver.abort(self.outbox, message.request_id)
            if self._coordinator.inspector is not None:
                self._coordinator.inspector.aborted(message.request_id)
        self._coordinator.changed()

    def pump(self) -> None:
        while self.has_news() and self._stream.num_down < _MOST_FLUSHES:
            flush = self.outbox.take_news()
            if flush is None:
                self._stream.close()
                self.lost()
                return
            self._write(flush)

    def lost(self) -> None:
        if self._beating is not None:
            self._beating.end()
        self._coordinator.driver.detach(self.outbox)
        self._coordinator.forget(self._stream)
        self._coordinator.changed()

    def _write(self, flush: Flush) -> None:
        coordinator = self._coordinator
        if coordinator.inspector is not None:
            coordinator.inspector.told(flush)
        if coordinator.costs is not None:
            coordinator.spend(coordinator.costs.event_s * len(flush.deliveries))
        if self._is_lost_on_the_way(flush):
            return
        self._stream.down(flush)
        if self._stream.repeats_next and flush.deliveries:
            self._stream.repeats_next = False
            self._stream.down(flush)

    def _beat(self) -> None:
        self.outbox.beat()
        self.pump()

    def _is_lost_on_the_way(self, flush: Flush) -> bool:
        """Only what more news will follow: whoever waits for the last word waits for ever."""
        is_last = any(d.event.finish_reason or d.failure for d in flush.deliveries)
        if not self._stream.loses_next or is_last or flush.state or not flush.deliveries:
            return False
        self._stream.loses_next = False
        return True


class WorkSession:
    """The server's side of a replica's stream."""

    def __init__(self, coordinator: CoordinatorProcess, stream: Stream) -> None:
        self.replica: ConnectedReplica | None = None
        self.has_news = _nothing
        self.stream = stream
        self._coordinator = coordinator
        self._listening = coordinator.listening(self._beat, self._silent)

    def hear(self, message: WorkUp) -> None:
        if self._listening is not None:
            self._listening.hear()
        if isinstance(message, ReplicaInfo):
            self._register(message)
        elif self.replica is not None:
            self._take_in(self.replica, message)
        self._coordinator.changed()

    def pump(self) -> None:
        replica = self.replica
        if replica is None or not self.has_news():
            return
        if self.stream.num_down >= _MOST_COMMANDS and not replica.outbox.is_closed:
            return
        commands = replica.outbox.take_news()
        if commands is None:
            self.stream.close()
            self.lost()
            return
        if not commands:
            self.stream.down(Beat())
        for command in commands:
            if isinstance(command, SendLease):
                replica.times.sent(command.lease.lease_id)
            self.stream.down(command)
        if self._coordinator.inspector is not None:
            self._coordinator.inspector.sent(replica.info)

    def lost(self) -> None:
        self._end_listening()
        if self.replica is not None:
            self._coordinator.driver.leave(self.replica)
        self._coordinator.forget(self.stream)
        self._coordinator.changed()

    def _beat(self) -> None:
        if self.replica is not None:
            self.replica.outbox.beat()
            self.pump()

    def _silent(self) -> None:
        """It registers anew when it is back."""
        self.stream.close()
        self.lost()

    def _end_listening(self) -> None:
        if self._listening is not None:
            self._listening.end()

    def _register(self, info: ReplicaInfo) -> None:
        driver = self._coordinator.driver
        try:
            replica = driver.register(info)
        except SpecdecError:
            self._end_listening()
            self.stream.close()
            self._coordinator.forget(self.stream)
            return
        self.replica = replica
        self.has_news = replica.outbox.has_news
        self.stream.down(Registered(driver.epoch))

    def _take_in(self, replica: ConnectedReplica, message: WorkUp) -> None:
        driver = self._coordinator.driver
        if isinstance(message, GroupResult):
            costs = self._coordinator.costs
            if costs is not None:
                self._coordinator.spend(costs.message_s + costs.row_s * len(message.rows))
            came_s = driver.hear()
            driver.on_result(replica, message)
            replica.times.answered(message.lease_id, came_s, message.seconds, message.seconds)
        elif isinstance(message, Heartbeat):
            driver.on_occupancy(replica, message.occupancy)
        elif isinstance(message, ResetDone):
            driver.on_reset_done(replica, message.incarnation)
        elif isinstance(message, Drain):
            driver.drain(replica, message.asked_ago_s)


def _nothing() -> bool:
    """News for a replica that has not registered."""
    return False
