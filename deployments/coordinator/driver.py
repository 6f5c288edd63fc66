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
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from opentelemetry.trace import Tracer

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.audit import Auditor, AuditReplays, Origin, new_replay_id
from deployments.coordinator.connections import ConnectedReplica, origin_of, state_of
from deployments.coordinator.draining import DrainTracker
from deployments.coordinator.quotas import ClientQuotas
from deployments.coordinator.request_table import RequestTable
from deployments.coordinator.streams import IngressOutbox, WorkOutbox
from deployments.errors import ClientLimitError, Failure, FailureKind
from deployments.observability.metrics.request_times import IngressTimes
from deployments.observability.metrics.round_stages import LeaseTimes, StageHistograms
from deployments.observability.request_observer import EndReason, LiveRequest, RequestObserver
from deployments.observability.tracing.scheduler_spans import SchedulerSpans
from deployments.wire.lease_codec import result_from_pb
from specdec.v1 import coordination_pb2 as pb
from specdec_core.errors import InvalidRequestError, QueueFullError, SpecdecError
from specdec_core.messages import GroupResult, ReplicaInfo
from specdec_core.request import Request, TokenEvent
from specdec_core.scheduler import Scheduler, SendLease, SendReset

_MIN_SLEEP_S = 0.0005
"""Minimum seconds until a deadline that has passed is handled, so that streams are served
between."""


class WakeUp(asyncio.Event):
    """An event, and one alarm that sets it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = 0.0

    async def wait_until(self, deadline: float | None) -> None:
        """Wait until the event is set, or until `deadline` on the clock at the latest."""
        if deadline is not None:
            now = self._clock()
            due_s = max(deadline, now + _MIN_SLEEP_S)
            # An alarm that is due earlier is left as it is, although every round moves the deadline
            # on. One unneeded decision costs less than a new alarm for every round.
            if self._alarm is None or self._alarm_s > due_s:
                self._set_alarm(due_s, now)
        await self.wait()

    def _set_alarm(self, due_s: float, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = due_s
        self._alarm = asyncio.get_running_loop().call_later(due_s - now, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.set()


logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    replica: ConnectedReplica
    result: GroupResult
    came_s: float
    """Time at which the result was read, before it was parsed."""
    held_s: float


class SchedulerDriver:
    """Owns the scheduler, and the streams that bring its input and carry its output."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        epoch: int,
        audit_share: float = 0.0,
        limits: ClientLimits | None = None,
        tracer: Tracer | None = None,
        started_unix_s: float = 0.0,
        observers: Iterable[RequestObserver] = (),
        new_replay_id: Callable[[], str] = new_replay_id,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`observers` follow all requests of clients, in addition to those of every coordinator."""
        self.scheduler = scheduler
        self.epoch = epoch
        self.failure: Exception | None = None
        self.replicas: dict[str, ConnectedReplica] = {}
        self.stages: StageHistograms = {}
        self.ingress_times = IngressTimes()
        self.quotas = ClientQuotas(limits)
        self.auditor = Auditor(audit_share, self._present_targets, new_id=new_replay_id)
        self.spans = SchedulerSpans(tracer) if tracer is not None else None
        self.started_unix_s = started_unix_s
        traced = () if self.spans is None else (self.spans,)
        self.requests = RequestTable((self.quotas, self.auditor, *traced, *observers), clock)
        self._replays = AuditReplays(self.auditor, scheduler, self._guard)
        self._clock = clock
        self._result_came_s: float | None = None
        """Time at which the last result was read, if no decision has followed it yet."""
        self._ingresses: dict[IngressOutbox, None] = {}
        """Ingress streams in the order in which they came."""
        self._events: list[TokenEvent] = []
        """Events that are decided, and not delivered yet."""
        self._answers: list[_Answer] = []
        """Results whose times are not recorded yet, because no replica waits for that."""
        self._drains = DrainTracker(clock())
        self._wake = WakeUp(clock)
        self._results: deque[tuple[ConnectedReplica, pb.GroupResult, asyncio.Future[None]]] = (
            deque()
        )
        """Results that have come and are not read, in the order in which they came. Each has the
        future that is done when it is read."""
        self._stream_left_s = clock()
        """Time at which the last stream ended."""

    @property
    def num_streams(self) -> int:
        return len(self._ingresses) + len(self.replicas)

    def idle_s(self) -> float:
        """Return the seconds since the last stream ended; 0 while there is a stream."""
        return 0.0 if self.num_streams else self._clock() - self._stream_left_s

    async def run(self) -> None:
        """Decide until the scheduler fails. A failure reaches every waiting client, then is
        raised."""
        try:
            while True:
                self._read_result()
                self._wake.clear()  # the decision follows everything that came until now
                self._send_commands()
                await asyncio.sleep(0)  # the tasks that write the leases run first
                self._deliver()
                if self.failure is not None:
                    raise self.failure
                if not self._results:
                    await self._wake.wait_until(self.scheduler.next_deadline())
        except Exception as error:
            self._fail(error)
            raise

    def decide(self) -> None:
        """Let the scheduler decide on the events since, and pass on its commands."""
        self._send_commands()
        self._deliver()

    def attach(self) -> IngressOutbox:
        """Add a new ingress stream."""
        outbox = IngressOutbox()
        self._ingresses[outbox] = None
        outbox.put_state(self._state())
        return outbox

    def detach(self, outbox: IngressOutbox) -> None:
        """Remove an ingress stream that has ended, and abort its requests, which no client waits
        for."""
        self._deliver_events()
        self._ingresses.pop(outbox, None)
        self._stream_left_s = self._clock()
        self._drains.ingress_left(self._stream_left_s)
        for request_id in self.requests.keys_of(outbox):
            self.requests.drop(request_id, EndReason.DISCONNECTED)
            self._guard(partial(self.scheduler.abort, request_id))

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
        if self.failure is not None:
            return
        self._deliver_events()
        request_id = request.request_id
        if not resume and request_id in self.requests and self._is_running(request_id):
            return self._refuse_id_in_use(outbox, request_id)
        now = self._clock()
        try:
            self.quotas.admit(request, now, is_resumed=resume)
            self._guard(partial(self.scheduler.add, request))
        except (ClientLimitError, InvalidRequestError, QueueFullError) as error:
            return self._refuse(outbox, request_id, error)
        if self.failure is not None:  # the request may be the cause: it must not come again
            return self.requests.refuse(outbox, request_id, self.failure)
        sequence_id = self.scheduler.sequence_id(request_id)
        live = LiveRequest(
            request=request, sequence_id=sequence_id, began_s=now, is_resumed=resume, trace=trace
        )
        self.requests.begin(outbox, live)
        if acknowledge:
            outbox.put_accepted(request_id)

    def _refuse(self, outbox: IngressOutbox, request_id: str, error: Exception) -> None:
        """Refuse a request, and end an older attempt."""
        self.requests.drop(request_id, EndReason.REPLACED)
        self._guard(partial(self.scheduler.abort, request_id))
        self.requests.refuse(outbox, request_id, error)

    def _refuse_id_in_use(self, outbox: IngressOutbox, request_id: str) -> None:
        error = InvalidRequestError(f"request_id {request_id!r} is in use", param="request_id")
        self.requests.refuse(outbox, request_id, error)

    def _is_running(self, request_id: str) -> bool:
        """Return True if a live request is still in the scheduler. If not, deliver its end."""
        if self.scheduler.status(request_id) is not None:
            return True
        self._guard(lambda _: self.decide())
        return False

    def abort(self, outbox: IngressOutbox, request_id: str) -> None:
        """End a request of any ingress. The ingress that asks learns whether the request was
        live."""
        self._deliver_events()
        was_live = request_id in self.requests
        self._guard(partial(self.scheduler.abort, request_id))
        outbox.put_abort(request_id, was_live)

    def register(self, info: ReplicaInfo) -> ConnectedReplica:
        """Register a replica whose stream has begun. Raises SpecdecError for one that does not
        fit."""
        self._guard(lambda now: self.scheduler.register(info, now))
        earlier = self.replicas.get(info.replica_id)
        if earlier is not None:
            self._end_stream(earlier)
        occupancy = pb.Occupancy(num_free_blocks=info.num_blocks)
        times = LeaseTimes(info.role, self.stages, self._clock)
        replica = ConnectedReplica(info, WorkOutbox(), occupancy, times)
        self.replicas[info.replica_id] = replica
        self._send_state()
        return replica

    def leave(self, replica: ConnectedReplica) -> None:
        """Deregister a replica whose stream has ended."""
        self._end_stream(replica)
        if self._is_here(replica):
            info = replica.info
            del self.replicas[info.replica_id]
            self._stream_left_s = self._clock()
            self._guard(
                partial(self.scheduler.deregister, info.replica_id, incarnation=info.incarnation)
            )
            self._send_state()

    def _is_here(self, replica: ConnectedReplica) -> bool:
        """Return True if its stream has not ended, and it has not begun another one."""
        return self.replicas.get(replica.info.replica_id) is replica

    def _end_stream(self, replica: ConnectedReplica) -> None:
        replica.outbox.close()
        self._drains.end(replica)

    def read_in_turn(
        self, replica: ConnectedReplica, message: pb.GroupResult
    ) -> asyncio.Future[None]:
        """Let the run task read a result, in the order in which results came. The scheduler decides
        after each of them, so that its replica gets leases before the next one is parsed. The
        future is done when the result is read, or holds the error that was raised."""
        done = asyncio.get_running_loop().create_future()
        self._results.append((replica, message, done))
        self._wake.set()
        return done

    def _read_result(self) -> None:
        """Read the oldest result, unless its stream has ended."""
        if not self._results:
            return
        replica, message, done = self._results.popleft()
        if done.cancelled():
            return
        self._result_came_s = self._clock()
        info = replica.info
        try:
            longest = info.kv_cache_spec.max_len(info.num_blocks)
            result = result_from_pb(
                message, info.replica_id, max_cached_len=longest, vocab_size=info.vocab_size
            )
            self.on_result(replica, result, message.occupancy, message.held_s)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def on_result(
        self,
        replica: ConnectedReplica,
        result: GroupResult,
        occupancy: pb.Occupancy,
        held_s: float = 0.0,
    ) -> None:
        """Pass a result on, with the replica's own count of its memory. The replica has had the
        lease for `held_s` seconds."""
        if self._is_here(replica):
            self.on_heartbeat(replica, occupancy)
            self._guard(partial(self.scheduler.on_result, result))
        came_s = self._clock() if self._result_came_s is None else self._result_came_s
        self._answers.append(_Answer(replica, result, came_s, held_s))

    def on_heartbeat(self, replica: ConnectedReplica, occupancy: pb.Occupancy) -> None:
        """Note a sign of life, with the replica's own count of its memory. It extends no lease, so
        the scheduler is not told."""
        if self._is_here(replica):
            replica.occupancy = occupancy
            if self._drains.asked:
                self._drains.heard_from(replica)
                self._wake.set()  # a replica that drains may have waited for it

    def on_reset_done(self, replica: ConnectedReplica, incarnation: int) -> None:
        replica.is_fenced = False
        self._guard(
            lambda now: self.scheduler.on_reset_done(replica.info.replica_id, incarnation, now)
        )

    def beat(self, outbox: IngressOutbox) -> None:
        """Let an ingress get a message now. If the load has changed, by which ingresses spread
        requests over cells, the message has it."""
        if self.scheduler.num_live != outbox.num_live:
            outbox.put_state(self._state())
        outbox.beat()

    def drain(self, replica: ConnectedReplica, asked_ago_s: float = 0.0) -> None:
        """Note that a replica is about to leave. Until it has left, no replay may delay it."""
        self._replays.drop()
        self._drains.ask(replica, self._clock() - asked_ago_s)
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

    def _fail(self, error: Exception) -> None:
        if self.failure is not None:
            return
        logger.error("the pool failed", exc_info=error)
        self.failure = error
        self._deliver_events()
        failure = Failure(kind=FailureKind.POOL_FAILED, message="the pool failed; try again")
        self.requests.fail_all(failure)
        for stream in (*self._ingresses, *(r.outbox for r in self.replicas.values())):
            stream.close()
        self._wake.set()

    def _send_commands(self) -> None:
        """Let the scheduler decide. Leases are sent before the tokens of the round that is over,
        because a replica waits for them."""
        for command in self.scheduler.advance(self._clock()):
            if isinstance(command, TokenEvent):
                self._events.append(command)
            elif isinstance(command, SendLease):
                lease = command.lease
                if replica := self.replicas.get(lease.replica_id):
                    replica.times.decided(lease.lease_id, self._result_came_s)
                    replica.outbox.put(command)
            elif replica := self.replicas.get(command.replica_id):
                if isinstance(command, SendReset):
                    replica.fence()
                replica.outbox.put(command)
        self._result_came_s = None

    def _deliver(self) -> None:
        self._deliver_events()
        if self._drains.asked:
            self._release_drains()
        elif self.auditor.waiting:
            self._replays.begin()

    def _release_drains(self) -> None:
        may_leave = self._drains.release(has_ingress=bool(self._ingresses), now=self._clock())
        for replica in may_leave:
            self._guard(partial(self.scheduler.drain, replica.info.replica_id))

    def _deliver_events(self) -> None:
        """Deliver the decided events. Called before anything else happens to a request, because a
        new attempt must not receive events of the old one."""
        answers, self._answers = self._answers, []
        for replica, result, came_s, held_s in answers:
            stages = replica.times.answered(result.lease_id, came_s, result.seconds, held_s)
            if self.spans is not None:
                self.spans.answered(replica.info.role, result, stages)
        events, self._events = self._events, []
        now = self._clock()
        for event in events:
            if not self.requests.deliver(event, now):
                self._replays.compare(event)

    def _send_state(self) -> None:
        for outbox in self._ingresses:
            outbox.put_state(self._state())

    def _present_targets(self) -> Origin | None:
        return origin_of(self.replicas.values())

    def _state(self) -> pb.PoolState:
        return state_of(self.replicas.values(), self.epoch, self.scheduler.num_live)
