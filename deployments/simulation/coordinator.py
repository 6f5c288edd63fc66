"""The coordinator's process: the real PoolDriver, and the server's side of its streams.

It stands for coordinator/service.py and the driver's run task: messages go in at once, and the pool
decides a moment later on all that came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from deployments.coordinator.audit import Auditor
from deployments.coordinator.outbox import Flush
from deployments.coordinator.pool_driver import PoolDriver
from deployments.simulation.listening import Listening, Ticker
from deployments.simulation.network import Stream
from deployments.simulation.record import Violation
from deployments.simulation.sessions import IngressSession, WorkSession
from deployments.simulation.timeline import Process, Timeline
from deployments.simulation.watched_pool import WatchedPool, Watcher
from deployments.wire.silence import LOOKS
from specdec_core.config import PoolConfig
from specdec_core.leases import ReplicaInfo
from specdec_core.pool import SequencePool

_TURN_S = 0.00005
"""Events that come within this are decided together, by a coordinator whose work costs nothing or
is charged."""
_OVERDUE_S = 0.0005
"""A deadline that has passed is looked at again after this, as PoolDriver does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorCosts:
    """Seconds of the coordinator's one core; all 0: it is as fast as wanted."""

    message_s: float = 0.0
    """A lease and its result, beside their rows."""
    row_s: float = 0.0
    event_s: float = 0.0
    """One request's news to its ingress."""


class Inspector(Watcher, Protocol):
    """Who watches. Raises Violation."""

    def began(self) -> None:
        """A life of the coordinator, which knows of nothing yet."""
        ...

    def aborted(self, request_id: str) -> None:
        """An ingress has ended a request."""
        ...

    def told(self, flush: Flush) -> None:
        """An ingress is told its news."""
        ...

    def sent(self, info: ReplicaInfo) -> None:
        """Commands were written to a replica's stream."""
        ...

    def decided(self, driver: PoolDriver) -> None: ...


class CoordinatorProcess(Process):
    """One life after the other, each with an epoch and a pool of its own."""

    def __init__(
        self,
        timeline: Timeline,
        name: str,
        config: PoolConfig,
        *,
        new_epoch: Callable[[], int],
        inspector: Inspector | None = None,
        audit_share: float = 0.0,
        silence_s: float | None = None,
        turn_s: float = _TURN_S,
        costs: CoordinatorCosts | None = None,
    ) -> None:
        super().__init__(timeline, name)
        self.driver: PoolDriver
        self.inspector = inspector
        self.costs = costs
        self.busy_s = 0.0
        self.sessions: dict[Stream, IngressSession | WorkSession] = {}
        self._config = config
        self._new_epoch = new_epoch
        self._audit_share = audit_share
        self._silence_s = silence_s
        self._turn_s = turn_s
        self._audit_ids = count()
        self._streams: dict[Stream, None] = {}
        """Also those that were not accepted yet."""
        self._will_decide = False
        self._wakes_at: float | None = None
        self._free_at = 0.0

    def start(self) -> None:
        super().start()
        epoch = self._new_epoch()
        pool = self._new_pool(epoch)
        self.driver = PoolDriver(pool, epoch=epoch, clock=self.timeline.clock)
        self.driver.replays.auditor = Auditor(
            self._audit_share, new_id=lambda: f"audit-{next(self._audit_ids)}"
        )
        self._will_decide = False
        self._wakes_at = None

    def crash(self) -> None:
        super().crash()
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self.sessions.clear()

    def expect(self, stream: Stream) -> None:
        """A stream is on its way here."""
        self._streams[stream] = None

    def accept_ingress(self, stream: Stream) -> None:
        self._accept(stream, IngressSession(self, stream))

    def accept_replica(self, stream: Stream) -> None:
        self._accept(stream, WorkSession(self, stream))

    def forget(self, stream: Stream) -> None:
        self.sessions.pop(stream, None)
        self._streams.pop(stream, None)

    def ticker(self, beat: Callable[[], None]) -> Ticker | None:
        """Of one stream whose client is not listened to. None where nobody beats."""
        silence_s = self._silence_s
        return None if silence_s is None else Ticker(self, silence_s / LOOKS, beat)

    def listening(self, beat: Callable[[], None], give_up: Callable[[], None]) -> Listening | None:
        silence_s = self._silence_s
        return None if silence_s is None else Listening(self, silence_s, beat=beat, give_up=give_up)

    def spend(self, seconds: float) -> None:
        """Charge work to the one core; what is decided next waits for it."""
        if seconds:
            self._free_at = max(self._free_at, self.timeline.now) + seconds
            self.busy_s += seconds

    def changed(self) -> None:
        """The pool is asked soon."""
        if not self._will_decide:
            self._will_decide = True
            self.at(max(self.timeline.now + self._turn_s, self._free_at), self._decide)

    def _new_pool(self, epoch: int) -> SequencePool:
        if self.inspector is None:
            return SequencePool(self._config, epoch=epoch)
        self.inspector.began()
        return WatchedPool(self._config, epoch=epoch, watcher=self.inspector)

    def _accept(self, stream: Stream, session: IngressSession | WorkSession) -> None:
        self.sessions[stream] = session
        stream.serve(session)
        session.pump()

    def _decide(self) -> None:
        self._will_decide = False
        self.driver.decide()
        if self.driver.failure is not None:
            raise Violation(f"the pool failed: {self.driver.failure!r}") from self.driver.failure
        for stream, session in list(self.sessions.items()):
            if session.has_news() and stream in self.sessions:
                session.pump()
        if self.inspector is not None:
            self.inspector.decided(self.driver)
        if not self.driver.pool._outbox.is_empty:
            self.changed()  # an audit has ended, or begun
        self._sleep()

    def _sleep(self) -> None:
        deadline = self.driver.pool.next_deadline()
        if deadline is None or (self._wakes_at is not None and self._wakes_at <= deadline):
            return
        self._wakes_at = max(deadline, self.timeline.now + _OVERDUE_S)
        self.at(self._wakes_at, self._wake)

    def _wake(self) -> None:
        if self._wakes_at is not None and self._wakes_at <= self.timeline.now:
            self._wakes_at = None
            self.changed()
