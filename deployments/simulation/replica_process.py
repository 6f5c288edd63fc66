"""A replica as a process: what work_loop.py does with its stream, around a modelled replica."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from deployments.silence import HEARTBEAT_S
from deployments.simulation.connected import Connected, Surroundings
from deployments.simulation.messages import Drain, Heartbeat, Registered, ResetDone, WorkDown
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.network import Stream
from deployments.simulation.step_costs import Accelerator
from specdec_core.leases import GroupLease, GroupResult
from specdec_core.pool import SendFree, SendLease, SendReset

_KEPT_RESULTS = 64


class SlotWatcher(Protocol):
    """Raises Violation."""

    def executed(self, runner: ModelReplica, lease: GroupLease, result: GroupResult) -> None: ...

    def counted(self, runner: ModelReplica) -> None:
        """Slots have been given back."""
        ...


class ReplicaProcess(Connected):
    """One replica: messages of its stream in order, one lease at a time."""

    def __init__(
        self,
        world: Surroundings,
        runner: ModelReplica,
        step_seconds: Callable[[GroupLease], float],
        *,
        repeats: float = 0.0,
        accelerator: Accelerator | None = None,
        watcher: SlotWatcher | None = None,
    ) -> None:
        """`repeats` is the share of results that are sent twice, and of leases that meet an answer
        to their namesake of an earlier epoch. An `accelerator` may be another replica's, too."""
        super().__init__(world, runner.info.replica_id)
        self.runner = runner
        self.slowness = 1.0
        self.clock_rate = 1.0
        """Seconds of its own clock in one of the world's."""
        self.busy_s = 0.0
        self.is_registered = False
        self.is_leaving = False
        self._step_seconds = step_seconds
        self._repeats = repeats
        self._accelerator = accelerator or Accelerator()
        self._watcher = watcher
        self._inbox: deque[WorkDown] = deque()
        self._is_busy = False
        self._is_lost = False
        self._old_results: dict[int, GroupResult] = {}

    @property
    def is_idle(self) -> bool:
        """It has carried out everything that it was sent."""
        stream = self.stream
        if self._is_busy or self._inbox or self.is_stopped or stream is None:
            return False
        return stream.num_down == 0 and stream.is_open

    @property
    def num_unread(self) -> int:
        num_down = self.stream.num_down if self.stream is not None else 0
        return num_down + len(self._inbox)

    def start(self) -> None:
        super().start()
        self._is_busy = self._is_lost = False
        self.open_stream()

    def crash(self) -> None:
        super().crash()
        self.is_registered = False
        self.runner.reset()

    def open_stream(self) -> None:
        self.runner.reset()
        self._inbox.clear()
        self.stream = self.connect(self.world.coordinator.accept_replica)
        if self.stream is None:
            return
        self.stream.hear_down = self._hear
        self.stream.lost_down = self._lost
        incarnation = self.world.random.getrandbits(64)
        self.runner.info = replace(self.runner.info, incarnation=incarnation)
        self.stream.up(self.runner.info)
        if self.world.heartbeats:
            self.after(HEARTBEAT_S / self.clock_rate, partial(self._beat, self.stream))

    def drain(self) -> None:
        """Ask to leave; once drained, the process ends."""
        self.is_leaving = True
        if self.stream is not None and self.is_registered:
            self.stream.up(Drain())
        else:
            self.crash()

    def _beat(self, stream: Stream) -> None:
        if stream is self.stream:
            stream.up(Heartbeat(self.runner.occupancy))
            self.after(HEARTBEAT_S / self.clock_rate, partial(self._beat, stream))

    def _hear(self, message: WorkDown) -> None:
        self._inbox.append(message)
        self._go_on()

    def _lost(self) -> None:
        """What runs is run to its end, as in a thread; then the stream is opened anew."""
        self.stream = None
        self.is_registered = False
        self._inbox.clear()
        if self._is_busy:
            self._is_lost = True
        else:
            self.reconnect_later()

    def _go_on(self) -> None:
        while self._inbox and not self._is_busy:
            self._carry_out(self._inbox.popleft())

    def _carry_out(self, message: WorkDown) -> None:
        if isinstance(message, SendLease):
            self._begin(message.lease)
        elif isinstance(message, SendFree):
            self.runner.free(message.sequence_ids)
            self._count()
        elif isinstance(message, SendReset):
            self.runner.reset()
            self._count()
            self._answer(ResetDone(message.incarnation))
        elif isinstance(message, Registered):
            self.is_registered = True
            self.connected()
        else:
            self.crash()

    def _begin(self, lease: GroupLease) -> None:
        self._is_busy = True
        seconds = self._step_seconds(lease) * self.slowness
        self.busy_s += seconds
        older = self._old_results.get(lease.lease_id)
        if older is not None and older.epoch != lease.epoch:
            self._answer(older)
        done_at = self._accelerator.take(self.timeline.now, seconds)
        self.at(done_at, partial(self._finish, lease, seconds * self.clock_rate))

    def _finish(self, lease: GroupLease, seconds: float) -> None:
        self._is_busy = False
        result = self.runner.execute(lease, seconds)
        if self._watcher is not None:
            self._watcher.executed(self.runner, lease, result)
        if self._is_lost:
            self._is_lost = False
            self.reconnect_later()
            return
        self._answer(result)
        if self._repeats:
            self._repeat(result)
        self._go_on()

    def _count(self) -> None:
        if self._watcher is not None:
            self._watcher.counted(self.runner)

    def _repeat(self, result: GroupResult) -> None:
        if len(self._old_results) < _KEPT_RESULTS:
            self._old_results.setdefault(result.lease_id, result)
        if self.world.random.random() < self._repeats:
            self._answer(result)

    def _answer(self, message: GroupResult | ResetDone) -> None:
        if self.stream is not None:
            self.stream.up(message)
