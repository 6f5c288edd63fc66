"""A replica as a process: what work_loop.py does with its stream, around a modelled replica."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from deployments.replica.lives import Lives
from deployments.simulation.connected import Connected, Surroundings
from deployments.simulation.messages import Drain, Heartbeat, Registered, ResetDone, WorkDown
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.network import Stream
from deployments.simulation.step_costs import Accelerator
from specdec_core.leases import GroupLease, GroupResult, Role
from specdec_core.pool import Drained, SendFree, SendLease, SendReset

_KEPT_RESULTS = 64


class SlotWatcher(Protocol):
    """Raises Violation."""

    def executed(self, runner: ModelReplica, lease: GroupLease, result: GroupResult) -> None: ...

    def voided(self, leases: Iterable[GroupLease]) -> None:
        """A reset was read behind them, and they have not begun."""
        ...

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
        self.busy_s = 0.0
        self.is_registered = False
        self._was_target = False
        """Registered, since it started."""
        self.is_leaving = False
        self._asked_at: float | None = None
        """To leave."""
        self._step_seconds = step_seconds
        self._repeats = repeats
        self._accelerator = accelerator or Accelerator()
        self._watcher = watcher
        self._unread: deque[WorkDown] = deque()
        """Behind a reset that the thread has not carried out: until then nothing is read."""
        self._is_resetting = False
        self._inbox: deque[tuple[int, WorkDown]] = deque()
        """What the thread was given, and in which life."""
        self._lives = Lives()
        self._is_busy = False
        self._is_lost = False
        self._old_results: dict[int, GroupResult] = {}

    @property
    def is_idle(self) -> bool:
        """It has carried out everything that it was sent."""
        stream = self.stream
        if self._is_busy or self._inbox or self._unread or self.is_stopped or stream is None:
            return False
        return stream.num_down == 0 and stream.is_open

    @property
    def is_connected(self) -> bool:
        """The coordinator has taken it in, too."""
        return self.is_registered and super().is_connected

    @property
    def num_unread(self) -> int:
        num_down = self.stream.num_down if self.stream is not None else 0
        return num_down + len(self._inbox) + len(self._unread)

    def start(self) -> None:
        super().start()
        self._is_busy = self._is_lost = self._was_target = False
        self.open_stream()

    def crash(self) -> None:
        super().crash()
        self.is_registered = False
        self.runner.reset()

    def open_stream(self) -> None:
        self.runner.reset()
        self._forget_orders()
        self.stream = self.connect(self.world.coordinator.accept_replica)
        if self.stream is None:
            return
        self.stream.hear_down = self._hear
        self.stream.lost_down = self.stream_lost
        incarnation = self.world.random.getrandbits(64)
        self.runner.info = replace(self.runner.info, incarnation=incarnation)
        self.stream.up(self.runner.info)
        if self.is_leaving:
            self._ask_to_leave(self.stream)

    def drain(self) -> None:
        """Ask to leave; once drained, the process ends."""
        self.is_leaving = True
        self._asked_at = self.world.timeline.now
        if not (self.is_registered or self._was_target):
            self.crash()
        elif self.stream is not None:
            self._ask_to_leave(self.stream)

    def _ask_to_leave(self, stream: Stream) -> None:
        now = self.world.timeline.now
        if self._asked_at is None:  # it was down when it was to be asked
            self._asked_at = now
        stream.up(Drain(now - self._asked_at))

    def beat(self) -> None:
        if self.stream is not None:
            self.stream.up(Heartbeat(self.runner.occupancy))

    def stream_lost(self) -> None:
        """What runs is run to its end, as in a thread; then the stream is opened anew."""
        self.forget_stream()
        self.is_registered = False
        self._forget_orders()
        if self._is_busy:
            self._is_lost = True
        else:
            self.reconnect_later()

    def _hear(self, message: WorkDown) -> None:
        if self.listening is not None:
            self.listening.hear()
        self._unread.append(message)
        self._go_on()

    def _go_on(self) -> None:
        self._read()
        while self._inbox and not self._is_busy:
            life, message = self._inbox.popleft()
            self._carry_out(message, life)
            self._read()

    def _read(self) -> None:
        """Give the thread what is read. A reset makes void what it has not begun, and until it is
        done nothing more is read."""
        while self._unread and not self._is_resetting:
            message = self._unread.popleft()
            if isinstance(message, SendReset):
                self._is_resetting = True
                self._lives.end()
                if self.listening is not None:
                    self.listening.pause()
                if self._watcher is not None:
                    orders = [order for _, order in self._inbox]
                    self._watcher.voided(x.lease for x in orders if isinstance(x, SendLease))
            self._inbox.append((self._lives.now, message))

    def _forget_orders(self) -> None:
        self._unread.clear()
        self._inbox.clear()
        self._is_resetting = False
        self._lives.end()

    def _carry_out(self, message: WorkDown, life: int) -> None:
        if isinstance(message, SendLease):
            if not self._lives.is_void(life):
                self._begin(message.lease)
        elif isinstance(message, SendFree):
            self.runner.free(message.sequence_ids)
            self._count()
        elif isinstance(message, SendReset):
            self.runner.reset()
            self._count()
            self._is_resetting = False
            if self.listening is not None:
                self.listening.hear()
            self._answer(ResetDone(message.incarnation))
        elif isinstance(message, Registered):
            self.is_registered = True
            self._was_target = self.runner.info.role is Role.TARGET
            self.connected()
        elif isinstance(message, Drained):
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
