"""CoordinatorService over a SchedulerDriver: messages in, messages out, one writer per stream.

A message that no replica or ingress of this project sends ends its stream, because the scheduler
relies on checked values. The scheduler itself checks whether a result belongs to a lease, an epoch
and a row.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.status import pool_status
from deployments.coordinator.streams import IngressOutbox
from deployments.wire.lease_codec import register_from_pb, write_lease
from deployments.wire.liveness import PeerTimeoutError, heartbeats, received
from deployments.wire.request_codec import submit_from_pb
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.errors import InvalidRequestError, SpecdecError
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.scheduler import Drained, SendFree, SendLease, SendReset
from specdec_core.speculation.pass_prices import row_prices

logger = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 10.0
_MAX_NAME_LEN = 1024
_MAX_HOLD_S = 1.0
"""Maximum seconds for which an ingress may let the coordinator hold events."""

_Context = grpc.aio.ServicerContext[Any, Any]

_UNREADABLE = (ValueError, LookupError, TypeError, struct.error, DecodeError, SpecdecError)
"""Errors raised by messages that none of our processes sends."""


class CoordinatorServicer(pb_grpc.CoordinatorServiceServicer):
    """One handler per stream: it reads in its own task, and writes what its outbox holds.

    Every caller has shown the token (server.py). An unreadable message ends the stream that it came
    over, and nothing else.
    """

    def __init__(
        self,
        driver: SchedulerDriver,
        *,
        register_timeout_s: float = REGISTER_TIMEOUT_S,
        silence_s: float | None = None,
    ) -> None:
        """`silence_s` is the time after which a silent replica is given up. None means
        SILENCE_S."""
        self._driver = driver
        self._silence_s = silence_s
        self._register_timeout_s = register_timeout_s

    async def Generate(
        self, request_iterator: AsyncIterator[pb.GenerateUp], context: _Context
    ) -> AsyncIterator[pb.GenerateDown]:
        if self._driver.failure is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the pool failed")
        outbox = self._driver.attach()
        reader = asyncio.create_task(self._read_requests(request_iterator, outbox))
        try:
            with heartbeats(partial(self._driver.beat, outbox), self._silence_s):
                while (message := await outbox.take()) is not None:
                    yield message
        finally:
            reader.cancel()
            self._driver.detach(outbox)

    async def Work(
        self, request_iterator: AsyncIterator[pb.WorkUp], context: _Context
    ) -> AsyncIterator[pb.WorkDown]:
        replica = await self._register(request_iterator, context)
        reader = asyncio.create_task(self._read_results(request_iterator, replica))
        try:
            yield pb.WorkDown(registered=pb.Registered(epoch=self._driver.epoch))
            with heartbeats(replica.outbox.beat, self._silence_s):
                while (commands := await replica.outbox.take()) is not None:
                    if not commands:
                        yield pb.WorkDown()
                    for command in commands:
                        message = pb.WorkDown()
                        if isinstance(command, SendLease):
                            write_lease(message.lease, command.lease)
                            if self._driver.spans is not None:
                                self._driver.spans.sent(command.lease, message.lease)
                            replica.times.sent(command.lease.lease_id)
                        elif isinstance(command, SendFree):
                            message.free.sequence_ids.extend(command.sequence_ids)
                        else:
                            _write_other_command(message, command)
                        yield message
        finally:
            reader.cancel()
            self._driver.leave(replica)

    async def PoolStatus(
        self, request: public_pb.PoolStatusRequest, context: _Context
    ) -> public_pb.PoolStatusResponse:
        return pool_status(self._driver)

    async def _read_requests(
        self, messages: AsyncIterator[pb.GenerateUp], outbox: IngressOutbox
    ) -> None:
        try:
            async for message in messages:
                match message.WhichOneof("kind"):
                    case "submit":
                        self._submit(message.submit, outbox)
                    case "times":
                        self._driver.ingress_times.add(message.times)
                    case _:
                        self._read_other(message, outbox)
        except _UNREADABLE:
            logger.warning("invalid message from an ingress; closing its stream", exc_info=True)
        finally:
            outbox.close()

    def _submit(self, message: pb.Submit, outbox: IngressOutbox) -> None:
        try:
            request = submit_from_pb(message)
        except InvalidRequestError as error:
            self._driver.requests.refuse(outbox, message.request_id, error)
            return
        trace = message.trace if message.HasField("trace") else None
        self._driver.submit(
            outbox, request, resume=message.resume, trace=trace, acknowledge=message.acknowledge
        )

    def _read_other(self, message: pb.GenerateUp, outbox: IngressOutbox) -> None:
        """Read an abort or the ingress's pace. Raises ValueError for a pace out of range."""
        match message.WhichOneof("kind"):
            case "abort":
                self._driver.abort(outbox, message.abort.request_id)
            case "pace":
                hold_s = message.pace.hold_s
                if not 0 <= hold_s <= _MAX_HOLD_S:
                    raise ValueError(f"hold_s={hold_s} must be in 0..{_MAX_HOLD_S:g}")
                outbox.hold_s = hold_s

    async def _register(
        self, messages: AsyncIterator[pb.WorkUp], context: _Context
    ) -> ConnectedReplica:
        try:
            async with asyncio.timeout(self._register_timeout_s):
                first = await anext(messages, pb.WorkUp())
            info = register_from_pb(first.register)
            _check_introduction(info)
            replica = self._driver.register(info)
            if info.role is Role.TARGET and (prices := row_prices(info.step_times)):
                logger.info("target %s: %s", info.replica_id, prices)
            return replica
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no registration arrived")
            raise
        except _UNREADABLE as error:
            logger.warning("refused a replica: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    async def _read_results(
        self, messages: AsyncIterator[pb.WorkUp], replica: ConnectedReplica
    ) -> None:
        try:
            async for message in received(messages, self._silence_s):
                if message.HasField("result"):
                    await self._driver.read_in_turn(replica, message.result)
                else:
                    self._read_other_result(message, replica)
        except (*_UNREADABLE, PeerTimeoutError) as error:
            _log_end(replica, error)
        finally:
            # Immediately, because a write to a peer that does not read may never end.
            self._driver.leave(replica)

    def _read_other_result(self, message: pb.WorkUp, replica: ConnectedReplica) -> None:
        """Read any message of a registered replica but a result."""
        match message.WhichOneof("kind"):
            case "heartbeat":
                self._driver.on_heartbeat(replica, message.heartbeat.occupancy)
            case "reset_done":
                self._driver.on_reset_done(replica, message.reset_done.incarnation)
            case "drain":
                self._driver.drain(replica, message.drain.asked_ago_s)
            case other:
                logger.warning("unexpected message of kind %s from a replica", other)


def _write_other_command(message: pb.WorkDown, command: SendReset | Drained) -> None:
    if isinstance(command, SendReset):
        message.reset.incarnation = command.incarnation
    else:
        message.drained.SetInParent()


def _log_end(replica: ConnectedReplica, error: Exception) -> None:
    """Log the error that ends a replica's stream."""
    who = replica.info.replica_id
    if isinstance(error, PeerTimeoutError):
        # Its sequences continue elsewhere; it registers again when it is back.
        logger.warning("deregistering %s: %s", who, error)
    else:
        logger.warning("invalid message from %s; closing its stream", who, exc_info=error)


def _check_introduction(info: ReplicaInfo) -> None:
    """Check a replica's registration. Raises ValueError."""
    block_size = info.kv_cache_spec.block_size
    sizes = (info.num_blocks, block_size, info.max_model_len, info.vocab_size)
    if min(sizes) < 1 or info.tile_rows < 0:
        raise ValueError(
            f"num_blocks, block_size, max_model_len and vocab_size must be at least 1, got {sizes}"
        )
    names = (info.replica_id, info.model_digest, info.fingerprint, info.device)
    if max(map(len, names)) > _MAX_NAME_LEN or not all(name.isprintable() for name in names):
        raise ValueError(f"names must be printable and at most {_MAX_NAME_LEN} characters long")
    times = [number for time in info.step_times for number in time[:3]]
    is_told = all(time.num_cached >= 0 for time in info.step_times)
    if info.max_num_seqs < 0 or not is_told or not all(0 < one < math.inf for one in times):
        raise ValueError(
            "max_num_seqs must not be negative and pass times must be positive, got "
            f"{info.max_num_seqs} and {times}"
        )
    if not info.replica_id:
        raise ValueError("replica_id is empty")
