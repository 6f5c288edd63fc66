"""A replica's side of the Work stream: registers, runs leases in order, and recovers from errors.

While a lease runs, the next one is read and handed to the thread. The next one begins when the
lease before it ends, unless the coordinator has given it up by then.

After any failure the replica drops its sequences and registers again under another incarnation. Its
whole state can be rebuilt from token IDs. This file does not use Ray, because the way to find the
coordinator is an argument.

A lease is void if the replica read it before a reset or before its stream was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, Protocol

import grpc

from deployments.observability.tracing.lease_spans import LeaseSpans
from deployments.wire.endpoint import Address
from deployments.wire.lease_codec import (
    lease_from_pb,
    occupancy_to_pb,
    register_to_pb,
    write_result,
)
from deployments.wire.liveness import Backoff, heartbeat_interval_s, received
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.messages import GroupLease, GroupResult, Occupancy, ReplicaInfo, Role

logger = logging.getLogger(__name__)

_STUCK_TTLS = 10
"""Multiple of a lease's time to live after which the thread that runs the lease counts as stuck.

The coordinator has given the lease up after one time to live.
"""
_LOOK_S = 1.0
"""Seconds between two checks whether a leaving replica is still awaited."""


async def _nobody() -> bool:
    return False


class LeaseRunner(Protocol):
    """Protocol of `specdec_core.worker.replica.Replica`. One executor thread calls it, in order."""

    @property
    def occupancy(self) -> Occupancy: ...

    def execute(self, lease: GroupLease) -> GroupResult: ...

    def free(self, sequence_ids: Iterable[int]) -> None: ...

    def reset(self) -> None: ...


Outgoing = asyncio.Queue[pb.WorkUp | None]


class _ReadLease(NamedTuple):
    """A lease that was read from a stream, and where its result goes."""

    lease: GroupLease
    traces: Sequence[pb.RowTrace]
    read_s: float
    """Time at which it came, before it was parsed."""
    generation: int
    outgoing: Outgoing


class WorkLoop:
    """Keeps one replica registered and working until it is stopped."""

    def __init__(
        self,
        runner: LeaseRunner,
        *,
        describe: Callable[[int], ReplicaInfo],
        resolve: Callable[[], Awaitable[Address]],
        executor: Executor,
        spans: LeaseSpans | None = None,
        silence_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
        draw: random.Random | None = None,
    ) -> None:
        """Make the loop of one replica.

        `describe(incarnation)` returns the registration, and `resolve()` the coordinator's address.
        A coordinator is given up after `silence_s` seconds of silence; None means SILENCE_S. `draw`
        makes incarnations and pauses.
        """
        self.failure: BaseException | None = None
        self._runner = runner
        self._describe = describe
        self._resolve = resolve
        self._executor = executor
        self._spans = spans or LeaseSpans()
        self._silence_s = silence_s
        self._clock = clock
        self._draw = draw or random.Random()
        self._outgoing: Outgoing = asyncio.Queue()
        self._is_registered = False
        self._was_target = False
        """Whether it was ever registered as a target. The next coordinator's clients may have no
        other."""
        self._has_tried = False
        """Whether its first stream is over. Before that, a coordinator's clients may wait for
        it."""
        self._drain_requested_at_s: float | None = None
        """Time at which it first asked to leave."""
        self._drained = asyncio.Event()
        self._failed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._free_s = 0.0
        """Time at which the last lease ended."""
        self._generation = 0
        """Number of resets and lost streams. A lease read at a smaller number is void."""
        self._stuck_at_s = float("inf")
        """Time from which the running lease counts as stuck."""

    @property
    def is_registered(self) -> bool:
        return self._is_registered

    @property
    def is_stuck(self) -> bool:
        """Whether the thread has run one lease for so long that it will not return."""
        return self._clock() > self._stuck_at_s

    async def run(self) -> None:
        """Serve one stream after another. Return when drained, or when running a lease failed."""
        backoff = Backoff(self._draw.uniform)
        while not self._drained.is_set() and self.failure is None:
            try:
                await self._serve_stream(backoff)
            except (grpc.aio.AioRpcError, OSError) as error:
                logger.info("cannot reach the coordinator: %s", _first_line(error))
            except Exception:
                logger.exception("the work stream broke")
            self._is_registered, self._has_tried = False, True
            if self._drain_requested_at_s is not None and not self._was_target:
                self._drained.set()
            if not self._drained.is_set():
                await asyncio.sleep(backoff.next_wait_s())
        self._drained.set()  # callers of `drain` need not wait

    async def drain(
        self, timeout_s: float, is_awaited: Callable[[], Awaitable[bool]] = _nobody
    ) -> None:
        """Ask for no more leases, and wait at most `timeout_s` until the sequences have moved.

        Then wait as long as a coordinator has the replica and `is_awaited` says that its successor
        loads. Each coordinator that the replica registers with meanwhile is asked again.
        """
        if self._has_tried and not (self._is_registered or self._was_target):
            self._drained.set()
            return
        self._drain_requested_at_s = self._clock()
        self._request_drain()
        while not await self._is_drained_within(timeout_s):
            stays = self._is_registered and not self.is_stuck and await is_awaited()
            if not stays:
                waited_s = self._clock() - self._drain_requested_at_s
                logger.warning(
                    "not drained after %.0f s; other replicas replay the remaining sequences",
                    waited_s,
                )
                self._drained.set()
            timeout_s = _LOOK_S

    async def _is_drained_within(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._drained.wait()
        return self._drained.is_set()

    def _request_drain(self) -> None:
        if self._drain_requested_at_s is not None:
            self._outgoing.put_nowait(pb.WorkUp(drain=pb.Drain()))

    async def _serve_stream(self, backoff: Backoff) -> None:
        endpoint = await self._resolve()
        await self._loop.run_in_executor(self._executor, self._runner.reset)
        self._outgoing = asyncio.Queue()
        info = self._describe(self._draw.getrandbits(64))
        self._outgoing.put_nowait(pb.WorkUp(register=register_to_pb(info)))
        self._request_drain()
        async with endpoint.channel() as channel:
            stub = pb_grpc.CoordinatorServiceStub(channel)
            call = stub.Work(self._messages(self._outgoing), metadata=endpoint.metadata)
            reader = asyncio.create_task(self._read(call, info, backoff))
            failed = asyncio.create_task(self._failed.wait())
            heartbeats = asyncio.create_task(self._send_heartbeats(self._outgoing))
            try:
                await asyncio.wait({reader, failed}, return_when=asyncio.FIRST_COMPLETED)
                if reader.done():
                    reader.result()
            finally:
                for task in (reader, failed, heartbeats):
                    task.cancel()
                self._outgoing.put_nowait(None)
                self._generation += 1

    async def _read(
        self, messages: AsyncIterable[pb.WorkDown], info: ReplicaInfo, backoff: Backoff
    ) -> None:
        async for message in received(aiter(messages), self._silence_s):
            await self._carry_out(message, info, backoff)
            if self._drained.is_set():
                return

    async def _messages(self, outgoing: Outgoing) -> AsyncIterator[pb.WorkUp]:
        while (message := await outgoing.get()) is not None:
            if message.HasField("drain") and self._drain_requested_at_s is not None:
                asked_ago_s = self._clock() - self._drain_requested_at_s
                message.drain.asked_ago_s = asked_ago_s  # when it is sent
            yield message

    async def _send_heartbeats(self, outgoing: Outgoing) -> None:
        while True:
            await asyncio.sleep(heartbeat_interval_s(self._silence_s))
            occupancy = occupancy_to_pb(self._runner.occupancy)
            outgoing.put_nowait(pb.WorkUp(heartbeat=pb.Heartbeat(occupancy=occupancy)))

    async def _carry_out(self, message: pb.WorkDown, info: ReplicaInfo, backoff: Backoff) -> None:
        match message.WhichOneof("kind"):
            case "lease":
                read_s, traces = self._clock(), message.lease.traces
                lease = lease_from_pb(message.lease, info.replica_id)
                read = _ReadLease(lease, traces, read_s, self._generation, self._outgoing)
                self._order(partial(self._execute, read))
            case "free":
                self._order(partial(self._runner.free, tuple(message.free.sequence_ids)))
            case _:
                await self._change_state(message, info, backoff)

    async def _change_state(
        self, message: pb.WorkDown, info: ReplicaInfo, backoff: Backoff
    ) -> None:
        """Carry out a message about the replica itself. A heartbeat has no kind."""
        match message.WhichOneof("kind"):
            case "registered":
                self._is_registered = True
                self._was_target = info.role is Role.TARGET
                backoff.succeeded()
                logger.info("registered as %s %s", info.role, info.replica_id)
            case "reset":
                self._generation += 1
                await self._loop.run_in_executor(self._executor, self._runner.reset)
                done = pb.ResetDone(incarnation=message.reset.incarnation)
                self._outgoing.put_nowait(pb.WorkUp(reset_done=done))
            case "drained":
                self._order(partial(self._call_in_loop, self._drained.set))
                await self._drained.wait()

    def _order(self, work: Callable[[], object]) -> None:
        """Put work into the thread's queue, once the loop has asked for the next message. A thread
        that wakes while the loop holds the interpreter sleeps again, 0.1 ms each time."""
        self._loop.call_soon(self._executor.submit, self._run, work)

    def _run(self, work: Callable[[], object]) -> None:
        """Run `work` in the thread. Report its failure to the loop, and run nothing after it."""
        if self.failure is not None:
            return
        try:
            work()
        except Exception as error:
            self.failure = error
            logger.exception("the thread that runs leases failed; this replica cannot continue")
            self._call_in_loop(self._failed.set)

    def _execute(self, read: _ReadLease) -> None:
        """Run a lease in the thread, unless it is void: its result is no longer awaited."""
        if read.generation != self._generation:
            return
        began_s = max(read.read_s, self._free_s)  # it had arrived, and the one before was done
        self._stuck_at_s = self._clock() + _STUCK_TTLS * read.lease.ttl_s
        try:
            result = self._runner.execute(read.lease)
        finally:
            self._stuck_at_s = float("inf")
        self._free_s = self._clock()
        occupancy = self._runner.occupancy
        self._call_in_loop(partial(self._answer, read, result, occupancy, began_s))

    def _call_in_loop(self, call: Callable[[], object]) -> None:
        """From the thread, run `call` in the loop, or nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _answer(
        self, read: _ReadLease, result: GroupResult, occupancy: Occupancy, began_s: float
    ) -> None:
        message = pb.WorkUp()
        answer = message.result
        write_result(answer, result)
        answer.occupancy.CopyFrom(occupancy_to_pb(occupancy))
        answer.held_s = self._clock() - began_s
        read.outgoing.put_nowait(message)
        if read.traces:
            self._spans.record(read.lease, result, read.traces, answer.held_s)


def _first_line(error: BaseException) -> str:
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
    return (details or type(error).__name__).splitlines()[0]
