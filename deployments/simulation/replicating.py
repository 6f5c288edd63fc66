"""A replica as a process: the service's work loop around a modelled replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from deployments.replica.work_loop import WorkLoop
from deployments.simulation.model_replica import LeaseKey, ModelReplica, key_of
from deployments.simulation.network import Stream
from deployments.simulation.peer import Peer, Surroundings
from deployments.simulation.step_costs import Accelerator
from deployments.simulation.timeline import Call
from deployments.simulation.virtual_thread import VirtualThread
from deployments.wire.request_codec import pack_ids
from specdec.v1 import coordination_pb2 as pb
from specdec_core.messages import GroupLease, GroupResult, Occupancy, ReplicaInfo

_KEPT_RESULTS = 64
_DRAINS_S = 60.0
"""Maximum seconds of a drain. Faults that end it earlier do so from outside."""


class SlotWatcher(Protocol):
    """Observer of a replica's slots. Its methods raise Violation."""

    def executed(self, runner: ModelReplica, lease: GroupLease, result: GroupResult) -> None: ...

    def voided(self, leases: Iterable[LeaseKey]) -> None:
        """The leases are void. They have not begun, and a reset or the end of their stream was read
        after them."""
        ...

    def counted(self, runner: ModelReplica) -> None:
        """Slots have been given back."""
        ...


class ReplicaProcess(Peer):
    """One replica. It handles the messages of its stream in order, and one lease at a time."""

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
        """`repeats` is the share of results that are sent twice. If it is not 0, a result of an
        earlier epoch with the same lease ID is sent as well. Several replicas may share an
        `accelerator`."""
        super().__init__(world, runner.info.replica_id)
        self.runner = runner
        self.slowness = 1.0
        self.is_draining = False
        self.step_seconds = step_seconds
        self.accelerator = accelerator or Accelerator()
        self.watcher = watcher
        self.thread: VirtualThread
        self.work: WorkLoop
        self.garbles_next = False
        """True if its next result with tokens shall contain an impossible token."""
        self.occupancies: dict[LeaseKey, Occupancy] = {}
        """Occupancy after every lease that it has run."""
        self._repeats = repeats
        self._unbegun: dict[LeaseKey, None] = {}
        """Leases that were read on its present stream and have not begun."""
        self._old_results: dict[int, pb.WorkUp] = {}

    @property
    def is_registered(self) -> bool:
        return self.is_up and self.work.is_registered

    @property
    def is_connected(self) -> bool:
        """Return True if the coordinator has also registered the replica."""
        return self.is_registered and super().is_connected

    @property
    def is_idle(self) -> bool:
        """Return True if it has handled everything that it was sent."""
        stream = self.stream
        if stream is None or self.is_stopped or not (self.thread.is_idle and self.loop.is_idle):
            return False
        return stream.is_open and stream.down.is_empty

    @property
    def num_unread(self) -> int:
        num_down = self.stream.down.num_unread if self.stream is not None else 0
        return num_down + self.thread.num_waiting

    def main(self) -> None:
        self.runner.reset()
        self._unbegun.clear()
        self.thread = VirtualThread(self)
        self.work = WorkLoop(
            _TimedRunner(self),
            describe=self._describe,
            resolve=self.resolve,
            executor=self.thread,
            silence_s=self.world.silence_s,
            clock=self.clock,
            draw=self.world.random,
        )
        self.loop.create_task(self._run())

    def crash(self) -> None:
        super().crash()
        self.runner.reset()

    def clock(self) -> float:
        if self.is_up and self.thread.is_inside:
            return super().clock() + (self.thread.now - self.timeline.now) * self.clock_rate
        return super().clock()

    def from_thread(self, call: Call) -> None:
        if self.thread.is_inside:
            self.thread.tell(call)
        else:
            call()

    def drain(self) -> None:
        """Ask to leave; once drained, the process ends."""
        self.is_draining = True
        self.loop.create_task(self.work.drain(_DRAINS_S))

    async def _run(self) -> None:
        await self.work.run()
        if self.work.failure is not None:
            self.uncaught(self.work.failure)
        self.crash()

    def _describe(self, incarnation: int) -> ReplicaInfo:
        self.runner.info = replace(self.runner.info, incarnation=incarnation)
        return self.runner.info

    def opened(self, stream: Stream) -> None:
        super().opened(stream)
        self._void()

    def has_read(self, message: Any) -> None:
        kind = message.WhichOneof("kind")
        if kind == "lease":
            lease = message.lease
            self._unbegun[lease.epoch, self.name, lease.lease_id] = None
        elif kind == "reset":
            self._void()

    def begins(self, lease: GroupLease) -> None:
        self._unbegun.pop(key_of(lease), None)

    def _void(self) -> None:
        if self.watcher is not None:
            self.watcher.voided(self._unbegun)
        self._unbegun.clear()

    def written_with(self, message: Any) -> Iterable[Any]:
        if message.WhichOneof("kind") != "result":
            return (message,)
        if self.garbles_next and message.result.token_ids:
            self.garbles_next = False
            return (self._garbled(message),)
        return self._repeated(message) if self._repeats else (message,)

    def _repeated(self, message: pb.WorkUp) -> Iterator[pb.WorkUp]:
        lease_id = message.result.lease_id
        older = self._old_results.get(lease_id)
        if older is not None and older.result.epoch != message.result.epoch:
            yield older
        yield message
        if len(self._old_results) < _KEPT_RESULTS:
            self._old_results.setdefault(lease_id, message)
        if self.world.random.random() < self._repeats:
            yield message

    def _garbled(self, message: pb.WorkUp) -> pb.WorkUp:
        """Return the result with a last token that the model does not have."""
        said = pb.WorkUp()
        said.CopyFrom(message)
        said.result.token_ids = message.result.token_ids[:-4] + pack_ids(
            [self.runner.info.vocab_size]
        )
        return said


class _TimedRunner:
    """Runner for the work loop's thread whose passes take virtual time."""

    def __init__(self, process: ReplicaProcess) -> None:
        self._process = process
        self._runner = process.runner

    @property
    def occupancy(self) -> Occupancy:
        return self._runner.occupancy

    def execute(self, lease: GroupLease) -> GroupResult:
        process = self._process
        process.begins(lease)
        seconds = process.step_seconds(lease) * process.slowness
        process.busy_s += seconds
        process.thread.take(process.accelerator, seconds)
        result = self._runner.execute(lease, seconds * process.clock_rate)
        if process.watcher is not None:
            process.watcher.executed(self._runner, lease, result)
            process.occupancies[key_of(lease)] = self._runner.occupancy
        return result

    def free(self, sequence_ids: Iterable[int]) -> None:
        self._runner.free(sequence_ids)
        self._count()

    def reset(self) -> None:
        self._runner.reset()
        self._count()

    def _count(self) -> None:
        if self._process.watcher is not None:
            self._process.watcher.counted(self._runner)
