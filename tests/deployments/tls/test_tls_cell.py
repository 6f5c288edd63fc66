"""A cell over TLS: it works as without, and nobody else gets in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from deployments.wire.endpoint import Endpoint
from deployments.wire.tls_files import TlsFiles
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.messages import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.coordinator.test_cell import DRAFTING, collect, expected, request, until
from tests.deployments.tls.authority import NAME, Authority

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@contextlib.asynccontextmanager
async def working(files: TlsFiles) -> AsyncIterator[tuple[Cell, Endpoint]]:
    async with cell(DRAFTING, tls=files) as parts:
        assert parts.endpoint is not None
        yield parts, parts.endpoint


async def asked(endpoint: Endpoint) -> grpc.StatusCode:
    """What becomes of a call through this endpoint."""
    async with endpoint.channel() as channel:
        return await asked_over(channel, endpoint)


async def asked_over(channel: grpc.aio.Channel, endpoint: Endpoint) -> grpc.StatusCode:
    call = pb_grpc.CoordinatorServiceStub(channel).PoolStatus(
        public_pb.PoolStatusRequest(), timeout=10, metadata=endpoint.metadata
    )
    code: grpc.StatusCode = await call.code()
    return code


async def test_a_whole_cell_works_over_tls_and_survives_its_coordinator(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path / "tls")
    async with working(files) as (parts, _):
        parts.start_replica("t0", Role.TARGET)
        parts.start_replica("d0", Role.DRAFT)
        client = await parts.client()
        several = [request(f"r{i}", 20 + i) for i in range(8)]
        answers = await asyncio.gather(*(collect(client, one) for one in several))
        assert answers == [expected(one) for one in several]
        assert len((await client.pool_status()).replicas) == 2
        tokens: list[int] = []
        long = request("long", 150)
        async for event in client.generate(long):
            if not tokens:
                await parts.kill_coordinator()
                await parts.start_coordinator()
            tokens += event.token_ids
        assert tokens == expected(long)


async def test_who_speaks_plain_text_is_not_heard(tmp_path: Path) -> None:
    async with working(Authority().issue(tmp_path / "tls")) as (_, endpoint):
        assert await asked(endpoint) is grpc.StatusCode.OK
        assert await asked(replace(endpoint, tls=None)) is UNAVAILABLE


async def test_a_plain_coordinator_is_not_spoken_to_over_tls(tmp_path: Path) -> None:
    async with cell(DRAFTING) as parts:
        assert parts.endpoint is not None
        files = Authority().issue(tmp_path / "tls")
        assert await asked(replace(parts.endpoint, tls=files)) is UNAVAILABLE


async def test_without_a_certificate_the_token_alone_opens_nothing(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path / "tls")
    async with working(files) as (_, endpoint):
        bare = grpc.ssl_channel_credentials(root_certificates=files.ca.read_bytes())
        options = (("grpc.ssl_target_name_override", NAME),)
        async with grpc.aio.secure_channel(endpoint.address, bare, options) as channel:
            assert await asked_over(channel, endpoint) is UNAVAILABLE


async def test_a_certificate_of_another_authority_opens_nothing(tmp_path: Path) -> None:
    ours, theirs = Authority().issue(tmp_path / "a"), Authority().issue(tmp_path / "b")
    async with working(ours) as (_, endpoint):
        # It trusts ours, so that it is the coordinator who refuses.
        mixed = replace(theirs, ca=ours.ca)
        assert await asked(replace(endpoint, tls=mixed)) is UNAVAILABLE


async def test_a_coordinator_of_another_authority_or_name_is_not_spoken_to(tmp_path: Path) -> None:
    authority = Authority()
    ours, theirs = authority.issue(tmp_path / "a"), Authority().issue(tmp_path / "b")
    async with working(ours) as (_, endpoint):
        assert await asked(replace(endpoint, tls=replace(ours, ca=theirs.ca))) is UNAVAILABLE
        named = replace(ours, name="another.example.com")
        assert await asked(replace(endpoint, tls=named)) is UNAVAILABLE


async def test_the_token_is_asked_for_over_tls_as_well(tmp_path: Path) -> None:
    async with working(Authority().issue(tmp_path / "tls")) as (parts, endpoint):
        parts.endpoint = replace(endpoint, token="guessed")
        refused = await asked(parts.endpoint)
        assert refused is grpc.StatusCode.UNAUTHENTICATED
        assert parts.driver.num_streams == 0


@pytest.mark.parametrize("is_torn", [False, True])
async def test_a_renewed_authority_is_used_from_the_next_connection_on(
    tmp_path: Path, is_torn: bool
) -> None:
    """Certificate, key and authority are all replaced, at once or with a moment of disorder."""
    first, second = Authority(), Authority()
    files = first.issue(tmp_path / "tls")
    kept = first.issue(tmp_path / "kept")
    async with working(files) as (parts, endpoint):
        parts.start_replica("t0", Role.TARGET)
        client = await parts.client()
        running = client.generate(request(num_tokens=200))
        tokens = list((await anext(running)).token_ids)
        if is_torn:
            files.key.write_bytes(second.issue(tmp_path / "torn").key.read_bytes())
            assert await asked(replace(endpoint, tls=kept)) is grpc.StatusCode.OK
        second.issue(tmp_path / "tls")
        assert await asked(endpoint) is grpc.StatusCode.OK
        assert await asked(replace(endpoint, tls=kept)) is UNAVAILABLE
        tokens += [i async for event in running for i in event.token_ids]
        assert tokens == expected(request(num_tokens=200))
        parts.start_replica("t1", Role.TARGET)
        await until(lambda: "t1" in parts.driver.replicas)
