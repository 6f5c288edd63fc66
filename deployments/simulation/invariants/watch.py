"""Watches one coordinator through all its lives, and passes each event to the checks that need
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from deployments.simulation.invariants.bounds import Bounds
from deployments.simulation.invariants.decision_checks import DecisionChecks, WatchedReplica
from deployments.simulation.invariants.kv_owners import KVOwners
from deployments.simulation.invariants.lease_book import LeaseBook
from deployments.simulation.model_replica import key_of
from deployments.simulation.network import Stream
from deployments.simulation.record import Record, Violation
from deployments.wire.lease_codec import occupancy_to_pb
from specdec.v1 import coordination_pb2 as pb
from specdec_core.messages import GroupResult
from specdec_core.request import Request, TokenEvent
from specdec_core.scheduler import Command, Scheduler, SendFree, SendLease, SendReset


class Invariants:
    """Observer of one coordinator. Its methods raise Violation."""

    def __init__(
        self,
        record: Record,
        bounds: Bounds,
        kv_owners: KVOwners,
        replicas: Mapping[str, WatchedReplica],
    ) -> None:
        self._record = record
        self._bounds = bounds
        self._kv_owners = kv_owners
        self._replicas = replicas
        self._aborted: set[str] = set()
        """Requests aborted since the last decision."""
        self.began()

    def began(self) -> None:
        self._leases = LeaseBook(self._kv_owners)
        self._decisions = DecisionChecks(self._record, self._bounds, self._replicas)
        self._num_emitted: dict[str, int] = {}
        """Number of tokens delivered to each request's live attempt."""
        self._end_by: dict[str, float] = {}
        """Deadline of each request that has a time limit."""
        self._aborted.clear()

    def added(self, request: Request, now: float) -> None:
        request_id, timeout_s = request.request_id, request.timeout_s
        self._num_emitted[request_id] = len(request.emitted_token_ids)
        self._aborted.discard(request_id)
        self._end_by.pop(request_id, None)
        if timeout_s is not None:
            self._end_by[request_id] = now + timeout_s

    def aborted(self, request_id: str) -> None:
        self._aborted.add(request_id)

    def forgot(self, replica_id: str) -> None:
        self._leases.forgot(replica_id)

    def gone(self, replica_id: str) -> None:
        self._leases.gone(replica_id)

    def commanded(self, scheduler: Scheduler, commands: list[Command], now: float) -> None:
        for command in commands:
            if isinstance(command, SendLease):
                self._leases.sent(scheduler, command.lease, now)
            elif isinstance(command, TokenEvent):
                self._emit(command)
            elif isinstance(command, SendFree):
                self._leases.freed(command)
            elif isinstance(command, SendReset):
                self._leases.reset(command.replica_id)

    def result(
        self, scheduler: Scheduler, result: GroupResult, pass_on: Callable[[], None], now: float
    ) -> None:
        self._leases.result(scheduler, result, pass_on, now)

    def delivered(self, message: pb.GenerateDown) -> None:
        """(i) Events that an ingress has not read are merged."""
        if len(message.events) <= 4:
            return  # as few as one request may have
        requests = [event.request_id for event in message.events]
        if len(requests) > 2 * len(set(requests)) + 2:
            raise Violation(f"(i) {len(requests)} events for {len(set(requests))} requests")

    def sent(self, stream: Stream) -> None:
        """(i) A replica's stream has room for its commands."""
        process = self._replicas.get(stream.client.name)
        if process is None or process.stream is not stream:
            return
        num_unread = process.num_unread
        if num_unread > self._bounds.num_unread:
            raise Violation(f"(i) {num_unread} commands are unread by {stream.client.name}")

    def answered(self, replica: ConnectedReplica, result: GroupResult) -> None:
        """(f) A result contains the replica's occupancy, and the coordinator stores it."""
        process = self._replicas.get(result.replica_id)
        said = None if process is None else process.occupancies.get(key_of(result))
        if said is not None and replica.occupancy != occupancy_to_pb(said):
            raise Violation(f"(f) {result.replica_id} keeps {said}, noted is {replica.occupancy}")

    def decided(self, driver: SchedulerDriver) -> None:
        now = driver._clock()
        self._decisions.check(driver, self._leases.open, now)
        self._leases.check_expiry(now)
        self._check_ended(driver.scheduler, now)

    def _check_ended(self, scheduler: Scheduler, now: float) -> None:
        """(h) Requests that were aborted, or have no time left, are over."""
        for request_id in self._aborted:
            if scheduler.status(request_id) is not None:
                raise Violation(f"(h) {request_id} was aborted and goes on")
        self._aborted.clear()
        if not self._end_by or min(self._end_by.values()) > now:
            return
        for request_id in [key for key, end_by in self._end_by.items() if end_by <= now]:
            if scheduler.status(request_id) is not None:
                raise Violation(f"(h) {request_id} goes on, its time is over")
            del self._end_by[request_id]

    def _emit(self, event: TokenEvent) -> None:
        """(e) Only a live attempt receives tokens, each once and in order."""
        num_emitted = self._num_emitted.get(event.request_id)
        if event.index != num_emitted:
            raise Violation(f"(e) {event} comes at place {num_emitted}")
        self._num_emitted[event.request_id] = num_emitted + len(event.token_ids)
        if event.finish_reason is not None:
            del self._num_emitted[event.request_id]
            self._end_by.pop(event.request_id, None)
