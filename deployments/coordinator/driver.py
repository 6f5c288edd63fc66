"""Drives the scheduler: messages in, messages out, one clock. No Ray, no gRPC.

Every event is passed to the scheduler immediately. The run task then asks the scheduler what to do.
It asks after each result of a replica, and once for all other events of one event-loop iteration.
There is one run task, and every call comes from its event loop. A wake-up event ends its wait for
the next deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.audit import Auditor
from deployments.coordinator.audit_replays import AuditReplays
from deployments.coordinator.connections import ConnectedReplica, origin_of, state_of
from deployments.coordinator.draining import DrainTracker
from deployments.coordinator.quotas import ClientQuotas
from deployments.coordinator.request_table import RequestTable
from deployments.coordinator.streams import (
    Delivery,
    IngressOutbox,
    PoolState,
    WorkCommand,
    WorkOutbox,
    addressee,
)
from deployments.errors import ClientLimitError, Failure, FailureKind
from deployments.observability.metrics.ingress_times import IngressTimes
from deployments.observability.metrics.request_totals import RequestTotals
from deployments.observability.metrics.round_stages import LeaseTimes, StageHistograms
from deployments.observability.tracing.scheduler_spans import SchedulerSpans
from specdec.v1 import coordination_pb2 as pb
from specdec_core.errors import InvalidRequestError, QueueFullError, SpecdecError
from specdec_core.messages import GroupResult, Occupancy, ReplicaInfo
from specdec_core.request import Request, TokenEvent
from specdec_core.scheduler import Emit, Scheduler, SendLease, SendReset

_MIN_SLEEP_S = 0.0005
"""Minimum seconds until a deadline that has passed is handled, so that streams are served
between."""


class WakeUp:
    """An event, and one alarm that sets it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._news = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = 0.0

    def set(self) -> None:
        self._news.set()

    def clear(self) -> None:
        self._news.clear()

    async def wait(self, deadline: float | None) -> None:
        """Wait until the event is set, or until `deadline` on the clock at the latest."""
        if deadline is not None:
            self._ring_by(deadline)
        await self._news.wait()

    def _ring_by(self, deadline: float) -> None:
        """Set the alarm to `deadline`. An alarm that is due earlier is left as it is, although
        every round moves the deadline on. One unneeded decision costs less than a new alarm for
        every round."""
        now = self._clock()
        due_s = max(deadline, now + _MIN_SLEEP_S)
        if self._alarm is not None:
            if self._alarm_s <= due_s:
                return
            self._alarm.cancel()
        self._alarm_s = due_s
        self._alarm = asyncio.get_running_loop().call_later(due_s - now, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.set()


logger = logging.getLogger(__name__)


class SchedulerDriver:
    """Owns the scheduler, and the streams that bring its input and carry its output."""

    def __init__(
        self,
        pool: Scheduler,
        *,
        epoch: int,
        audit_share: float = 0.0,
        limits: ClientLimits | None = None,
        spans: SchedulerSpans | None = None,
        started_unix_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self.spans = spans or SchedulerSpans()
        self.ledger = ClientQuotas(limits)
        self.replays = AuditReplays(Auditor(audit_share), pool, self._guard)
        self.epoch = epoch
        self.failure: BaseException | None = None
        self.replicas: dict[str, ConnectedReplica] = {}
        self.stages: StageHistograms = {}
        self.ingress_times = IngressTimes()
        self.requests = RequestTotals(started_unix_s)
        self.owners = RequestTable(self.ledger, self.spans, self.requests, self.replays)
        self._clock = clock
        self._heard_s: float | None = None
        """Arrival time of the first result that no decision has followed yet."""
        self._ingresses: dict[IngressOutbox, None] = {}
        """Ingress streams in the order in which they came."""
        self._held: list[TokenEvent] = []
        """Events that are decided, and not delivered yet."""
        self._notes: list[Callable[[], object]] = []
        self._told_live = 0
        self._leaving = DrainTracker(clock())
        self._wake = WakeUp(clock)
        self._turn = asyncio.Lock()
        """Held from the reading of a result to the decision on it."""

    @property
    def auditor(self) -> Auditor:
        return self.replays.auditor

    @property
    def num_streams(self) -> int:
        return len(self._ingresses) + len(self.replicas)

    async def run(self) -> None:
        """Decide until the scheduler fails. A failure reaches every waiting client, then is
        raised."""
        try:
            while True:
                self._wake.clear()
                self._order_all()
                await asyncio.sleep(0)  # the tasks that write the leases run first
                if self._turn.locked():
                    self._turn.release()
                self._tell_all()
                if self.failure is not None:
                    raise self.failure
                await self._wake.wait(self.pool.next_deadline())
        except Exception as error:
            self._fail(error)
            raise

    def decide(self) -> None:
        """Let the scheduler decide on the events since, and pass on its commands."""
        self._order_all()
        self._tell_all()

    def later(self, note: Callable[[], object]) -> None:
        """Call `note` before the events of the next decision are delivered; no replica waits for
        it."""
        self._notes.append(note)

    def attach(self) -> IngressOutbox:
        """Add a new ingress stream."""
        outbox = IngressOutbox()
        self._ingresses[outbox] = None
        outbox.put_state(self._state())
        return outbox

    def detach(self, outbox: IngressOutbox) -> None:
        """Remove an ingress stream that has ended, and abort its requests, which no client waits
        for."""
        self._tell_held()
        self._ingresses.pop(outbox, None)
        for request_id in self.owners.keys_of(outbox):
            self.owners.forget(request_id)
            self._guard(partial(self.pool.abort, request_id))
        self._wake.set()  # the last target may have waited for it

    def submit(
        self,
        outbox: IngressOutbox,
        request: Request,
        *,
        resume: bool,
        trace: pb.TraceContext | None = None,
        acknowledge: bool = False,
    ) -> None:
        """Queue a request; a refusal is sent to its ingress alone. With `acknowledge`, the ingress
        is also informed that the request is queued."""
        self._tell_held()
        request_id = request.request_id
        if request_id in self.owners and not resume:
            if self.pool.status(request_id) is not None:
                in_use = InvalidRequestError(
                    f"request_id {request_id!r} is in use", param="request_id"
                )
                return self.refuse(outbox, request_id, in_use)
            self._guard(lambda _: self.decide())  # it has ended, and its end is not delivered yet
        try:
            self.owners.begin(outbox, request, self._clock(), is_resumed=resume)
            self._guard(lambda now: self.pool.add(request, now))
            if trace is not None:
                self.spans.begin(request, self.pool.sequence_id(request_id), trace)
            self.requests.began(request, is_resumed=resume)
            if acknowledge and self.failure is None:
                outbox.put_accepted(request_id)
        except (ClientLimitError, InvalidRequestError, QueueFullError) as error:
            self.owners.forget(request_id)
            self._guard(partial(self.pool.abort, request_id))  # an older attempt
            self.refuse(outbox, request_id, error)

    def refuse(self, outbox: IngressOutbox, request_id: str, error: Exception) -> None:
        """Tell an ingress that a request did not begin."""
        outbox.put(Delivery.failed(request_id, self.requests.refused(error)))

    def abort(self, outbox: IngressOutbox, request_id: str) -> None:
        """End a request of any ingress. The ingress that asks learns whether the request was
        live."""
        self._tell_held()
        was_live = request_id in self.owners
        self._guard(lambda now: self.pool.abort(request_id, now))
        outbox.put_abort(request_id, was_live)

    def register(self, info: ReplicaInfo) -> ConnectedReplica:
        """Register a replica whose stream has begun. Raises SpecdecError for one that does not
        fit."""
        self._guard(lambda now: self.pool.register(info, now))
        earlier = self.replicas.get(info.replica_id)
        if earlier is not None:
            self._end_stream(earlier)
        occupancy = Occupancy(num_free_blocks=info.num_blocks)
        times = LeaseTimes(info.role, self.stages, self._clock)
        replica = ConnectedReplica(info, WorkOutbox(), occupancy, times)
        self.replicas[info.replica_id] = replica
        self._tell_state()
        return replica

    def leave(self, replica: ConnectedReplica) -> None:
        """Deregister a replica whose stream has ended."""
        self._end_stream(replica)
        if self._is_here(replica):
            info = replica.info
            del self.replicas[info.replica_id]
            deregister = partial(self.pool.deregister, incarnation=info.incarnation)
            self._guard(partial(deregister, info.replica_id))
            self._tell_state()

    def _is_here(self, replica: ConnectedReplica) -> bool:
        """Return True if its stream has not ended, and it has not begun another one."""
        return self.replicas.get(replica.info.replica_id) is replica

    def _end_stream(self, replica: ConnectedReplica) -> None:
        replica.outbox.close()
        self._leaving.end(replica)

    async def turn(self) -> None:
        """Wait until earlier results are decided on, so that their replicas get leases before the
        next result is read."""
        await self._turn.acquire()
        self._wake.set()

    def hear(self) -> float:
        """Note that a result has arrived and is read now. Return the time; the next decision is
        timed from the first such arrival."""
        now = self._clock()
        if self._heard_s is None:
            self._heard_s = now
        return now

    def on_result(self, replica: ConnectedReplica, result: GroupResult) -> None:
        if self._is_here(replica):
            self._leaving.hear(replica)
            self._guard(lambda now: self.pool.on_result(result, now))

    def on_occupancy(self, replica: ConnectedReplica, occupancy: Occupancy) -> None:
        """Note a sign of life, with the replica's own count of its memory."""
        if self._is_here(replica):
            replica.occupancy = occupancy
            self._leaving.hear(replica)
            self._guard(lambda now: self.pool.heartbeat(replica.info.replica_id, now))

    def on_reset_done(self, replica: ConnectedReplica, incarnation: int) -> None:
        replica.is_fenced = False
        self._guard(lambda now: self.pool.on_reset_done(replica.info.replica_id, incarnation, now))

    def tell_load(self) -> None:
        """Tell ingresses the load, by which they spread requests over cells. Called now and then,
        not per round."""
        if self.pool.num_live != self._told_live:
            self._tell_state()

    def drain(self, replica: ConnectedReplica, asked_ago_s: float = 0.0) -> None:
        """Note that a replica is about to leave. Until it has left, no replay may delay it."""
        self.replays.drop()
        self._leaving.ask(replica, self._clock() - asked_ago_s)
        self._wake.set()

    def _guard(self, call: Callable[[float], object]) -> None:
        """Pass an event to the scheduler. Any error but a SpecdecError counts as the scheduler's
        failure."""
        if self.failure is not None:
            return
        try:
            call(self._clock())
        except SpecdecError:
            raise
        except Exception as error:
            self._fail(error)
        self._wake.set()

    def _fail(self, error: BaseException) -> None:
        if self.failure is not None:
            return
        logger.error("the pool failed", exc_info=error)
        self.failure = error
        self._tell_held()
        failure = Failure(kind=FailureKind.POOL_FAILED, message="the pool failed; try again")
        self.owners.fail_all(failure)
        for stream in (*self._ingresses, *(r.outbox for r in self.replicas.values())):
            stream.close()
        self._wake.set()

    def _order_all(self) -> None:
        """Let the scheduler decide. Leases are sent before the tokens of the round that is over,
        because a replica waits for them."""
        for command in self.pool.advance(self._clock()):
            if isinstance(command, Emit):
                self._held.append(command.event)
            else:
                self._order(command)
        self._heard_s = None

    def _tell_all(self) -> None:
        self._tell_held()
        for replica in self._leaving.let_go(has_ingress=bool(self._ingresses), now=self._clock()):
            self._guard(partial(self.pool.drain, replica.info.replica_id))
        if not self._leaving.is_anybody:
            self.replays.begin()

    def _tell_held(self) -> None:
        """Deliver the decided events. Called before anything else happens to a request, because a
        new attempt must not receive events of the old one."""
        notes, self._notes = self._notes, []
        for note in notes:
            note()
        events, self._held = self._held, []
        if events:
            origin = origin_of(self.replicas.values())
            for event in events:
                if not self.replays.hear(event):
                    self.owners.deliver(event, origin)

    def _order(self, command: WorkCommand) -> None:
        replica = self.replicas.get(addressee(command))
        if replica is None:
            return
        if isinstance(command, SendLease):
            replica.times.decided(command.lease.lease_id, self._heard_s)
        elif isinstance(command, SendReset):
            replica.fence()
        replica.outbox.put(command)

    def _tell_state(self) -> None:
        self._told_live = self.pool.num_live
        for outbox in self._ingresses:
            outbox.put_state(self._state())

    def _state(self) -> PoolState:
        return state_of(self.replicas.values(), self.epoch, self.pool.num_live)
