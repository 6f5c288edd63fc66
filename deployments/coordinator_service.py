"""CoordinatorService over a PoolDriver: messages in, messages out, one writer per stream."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any

import grpc

from deployments.connected import ConnectedReplica
from deployments.endpoint import MESSAGE_OPTIONS, TOKEN_KEY, Endpoint
from deployments.lease_translation import (
    lease_to_pb,
    occupancy_from_pb,
    register_from_pb,
    result_from_pb,
)
from deployments.outbox import Flush, IngressOutbox, PoolState, WorkCommand
from deployments.pool_driver import PoolDriver
from deployments.pool_status import pool_status
from deployments.silence import SilenceError, heard, or_beat
from deployments.translation import event_to_pb, submit_from_pb
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.errors import InvalidRequestError, SpecdecError
from specdec_core.pool import SendFree, SendLease, SendReset

logger = logging.getLogger(__name__)

SERVER_OPTIONS = (("grpc.so_reuseport", 0), *MESSAGE_OPTIONS)
"""No two coordinators share a port."""

_Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorServicer(pb_grpc.CoordinatorServiceServicer):
    """One handler per stream: it reads in a task of its own and writes what its outbox holds."""

    def __init__(self, driver: PoolDriver, token: str) -> None:
        self._driver = driver
        self._token = token

    async def Generate(
        self,
        request_iterator: AsyncIterator[pb.GenerateUp],
        context: _Context,
    ) -> AsyncIterator[pb.GenerateDown]:
        await self._check_token(context)
        if self._driver.failure is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the pool failed")
        outbox = self._driver.attach()
        reader = asyncio.create_task(self._read_requests(request_iterator, outbox))
        try:
            while (flush := await or_beat(outbox.take, Flush())) is not None:
                yield _flush_to_pb(flush)
        finally:
            reader.cancel()
            self._driver.detach(outbox)

    async def Work(
        self,
        request_iterator: AsyncIterator[pb.WorkUp],
        context: _Context,
    ) -> AsyncIterator[pb.WorkDown]:
        await self._check_token(context)
        replica = await self._register(request_iterator, context)
        reader = asyncio.create_task(self._read_results(request_iterator, replica))
        try:
            yield pb.WorkDown(registered=pb.Registered(epoch=self._driver.epoch))
            nothing: list[WorkCommand] = []
            while (commands := await or_beat(replica.outbox.take, nothing)) is not None:
                if not commands:
                    yield pb.WorkDown()
                for command in commands:
                    message = _command_to_pb(command)
                    if isinstance(command, SendLease):
                        replica.times.sent(command.lease.lease_id)
                    yield message
        finally:
            reader.cancel()
            self._driver.leave(replica)

    async def PoolStatus(
        self, request: public_pb.PoolStatusRequest, context: _Context
    ) -> public_pb.PoolStatusResponse:
        await self._check_token(context)
        return pool_status(self._driver)

    async def _check_token(self, context: _Context) -> None:
        given = dict(context.invocation_metadata() or ()).get(TOKEN_KEY, "")
        if not hmac.compare_digest(str(given), self._token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")

    async def _read_requests(
        self, messages: AsyncIterator[pb.GenerateUp], outbox: IngressOutbox
    ) -> None:
        try:
            async for message in messages:
                match message.WhichOneof("kind"):
                    case "submit":
                        self._submit(message.submit, outbox)
                    case "abort":
                        self._driver.abort(outbox, message.abort.request_id)
                    case "times":
                        self._driver.ingress_times.add(message.times)
        finally:
            outbox.close()

    def _submit(self, message: pb.Submit, outbox: IngressOutbox) -> None:
        try:
            request = submit_from_pb(message)
        except InvalidRequestError as error:
            self._driver.refuse(outbox, message.request_id, error)
            return
        self._driver.submit(outbox, request, resume=message.resume)

    async def _register(
        self,
        messages: AsyncIterator[pb.WorkUp],
        context: _Context,
    ) -> ConnectedReplica:
        first = await anext(messages)
        try:
            return self._driver.register(register_from_pb(first.register))
        except (SpecdecError, ValueError) as error:
            logger.warning("refused a replica: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    async def _read_results(
        self, messages: AsyncIterator[pb.WorkUp], replica: ConnectedReplica
    ) -> None:
        try:
            async for message in heard(messages):
                self._take_in(message, replica)
        except SilenceError as error:
            # Its sequences go on elsewhere; it registers anew when it is back.
            logger.warning("%s is left out: %s", replica.info.replica_id, error)
        finally:
            replica.outbox.close()

    def _take_in(self, message: pb.WorkUp, replica: ConnectedReplica) -> None:
        driver = self._driver
        match message.WhichOneof("kind"):
            case "result":
                answer, came_s = message.result, driver.hear()
                driver.on_occupancy(replica, occupancy_from_pb(answer.occupancy))
                driver.on_result(replica, result_from_pb(answer, replica.info.replica_id))
                replica.times.answered(answer.lease_id, came_s, answer.seconds, answer.held_s)
            case "heartbeat":
                driver.on_occupancy(replica, occupancy_from_pb(message.heartbeat.occupancy))
            case "reset_done":
                driver.on_reset_done(replica, message.reset_done.incarnation)
            case "drain":
                driver.drain(replica)
            case other:
                logger.warning("a replica sent %s, which is not expected here", other)


async def start_server(driver: PoolDriver, host: str) -> tuple[grpc.aio.Server, Endpoint]:
    """Serve CoordinatorService on a free port of `host`."""
    token = secrets.token_hex(16)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    servicer = CoordinatorServicer(driver, token)
    pb_grpc.add_CoordinatorServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"{host}:0")
    await server.start()
    return server, Endpoint(address=f"{host}:{port}", token=token)


def _flush_to_pb(flush: Flush) -> pb.GenerateDown:
    return pb.GenerateDown(
        events=[event_to_pb(delivery.event, delivery.failure) for delivery in flush.deliveries],
        state=_state_to_pb(flush.state) if flush.state else None,
        aborts=[pb.AbortOutcome(request_id=key, aborted=live) for key, live in flush.aborts],
    )


def _state_to_pb(state: PoolState) -> pb.PoolState:
    return pb.PoolState(
        epoch=state.epoch,
        num_targets=state.num_targets,
        num_drafts=state.num_drafts,
        max_model_len=state.max_model_len,
        model_digest=state.model_digest,
        fingerprint=state.fingerprint,
        numerics=state.numerics,
    )


def _command_to_pb(command: WorkCommand) -> pb.WorkDown:
    if isinstance(command, SendLease):
        return pb.WorkDown(lease=lease_to_pb(command.lease))
    if isinstance(command, SendFree):
        return pb.WorkDown(free=pb.Free(sequence_ids=command.sequence_ids))
    if isinstance(command, SendReset):
        return pb.WorkDown(reset=pb.Reset(incarnation=command.incarnation))
    return pb.WorkDown(drained=pb.Drained())
