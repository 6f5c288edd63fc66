"""Who does not fit is refused on its stream, in words that name what does not fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest

from deployments.wire.lease_codec import PROTOCOL_VERSION, register_to_pb
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.config import Numerics
from specdec_core.messages import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.coordinator.test_cell import PLAIN, collect, expected, request, until
from tests.deployments.fake_replica import FakeReplica


async def refusal(parts: Cell, register: pb.Register) -> str:
    """The details of FAILED_PRECONDITION."""
    assert parts.endpoint is not None
    async with parts.endpoint.channel() as channel:
        stub = pb_grpc.CoordinatorServiceStub(channel)
        call = stub.Work(metadata=parts.endpoint.metadata)
        await call.write(pb.WorkUp(register=register))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return str(error.value.details())


async def test_a_replica_of_another_protocol_version_is_refused_with_both_versions() -> None:
    async with cell(PLAIN) as parts:
        register = register_to_pb(FakeReplica(Role.TARGET).info("t0", 1))
        register.protocol_version = PROTOCOL_VERSION + 1
        told = await refusal(parts, register)
        assert f"protocol version {PROTOCOL_VERSION + 1} is not {PROTOCOL_VERSION}" in told
        assert not parts.driver.replicas


async def test_an_exact_target_of_other_bits_is_refused_by_name_and_the_others_go_on() -> None:
    async with cell(PLAIN) as parts:
        exact = FakeReplica(Role.TARGET, numerics=Numerics.EXACT, fingerprint="here")
        parts.start_replica("t0", Role.TARGET, exact)
        client = await parts.client()
        answer = asyncio.create_task(collect(client, request(num_tokens=200)))
        await until(lambda: exact.num_leases > 0)
        other = replace(exact.info("t1", 1), fingerprint="there")
        told = await refusal(parts, register_to_pb(other))
        assert "target t1 has the fingerprint 'there', t0 has 'here'" in told
        assert await answer == expected(request(num_tokens=200))
        assert list(parts.driver.replicas) == ["t0"]
