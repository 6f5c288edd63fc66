"""What strangers and broken peers can do at the coordinator's port: nothing to anybody else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest

from deployments.coordinator.server import PortLimits
from deployments.wire.endpoint import Endpoint
from deployments.wire.lease_codec import lease_from_pb, register_to_pb, write_result
from deployments.wire.request_codec import pack_ids, submit_to_pb, unpack_ids
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.config import Numerics
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import GroupLease, ReplicaInfo, Role
from tests.deployments.cell import Cell, cell, served
from tests.deployments.coordinator.test_cell import PLAIN, collect, expected, request, until
from tests.deployments.fake_replica import FakeReplica

SERVICE = "/specdec.v1.CoordinatorService"
LIMITS = PortLimits(max_message_bytes=100_000, register_timeout_s=0.5, max_streams=40)
CODE = grpc.StatusCode


@contextlib.asynccontextmanager
async def undisturbed(num_tokens: int = 60) -> AsyncIterator[tuple[Cell, Endpoint]]:
    """A cell at work for somebody else; whatever happens inside, that somebody gets their answer,
    of so many tokens, 1.5 ms each, and nothing is left of the guests."""
    async with served(PLAIN, port_limits=LIMITS) as (parts, client):
        await until(lambda: client.state is not None and client.state.num_targets == 1)
        long = request("somebody else", num_tokens)
        answer = asyncio.create_task(collect(client, long))
        await until(lambda: parts.driver.scheduler.counters().num_running == 1)
        assert parts.endpoint is not None
        yield parts, parts.endpoint
        assert await answer == expected(long)
        again = request("afterwards", 20)
        assert await collect(client, again) == expected(again)
        await until(lambda: parts.driver.num_streams == 2)
        assert parts.driver.failure is None
        assert parts.driver.scheduler.counters().num_running == 0
        await until(lambda: parts.replicas["t0"].num_slots == 0)


def information(name: str = "guest", **changes: Any) -> ReplicaInfo:
    info = FakeReplica(Role.TARGET).info(name, random.getrandbits(64))
    return replace(info, **changes)


@contextlib.asynccontextmanager
async def stream(
    endpoint: Endpoint, method: str, *, encode: Callable[[Any], bytes] | None = None
) -> AsyncIterator[Any]:
    """A call that the test writes itself; `encode` None: protobuf."""
    kinds = {"Work": pb.WorkDown, "Generate": pb.GenerateDown}
    async with endpoint.channel() as channel:
        call = channel.stream_stream(
            f"{SERVICE}/{method}",
            request_serializer=encode or (lambda message: message.SerializeToString()),
            response_deserializer=kinds[method].FromString,
        )(metadata=endpoint.metadata)
        yield call
        call.cancel()


async def end_of(call: Any) -> grpc.StatusCode:
    """Read to the end, whatever it is."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while await call.read() is not grpc.aio.EOF:
            pass
    code: grpc.StatusCode = await call.code()
    return code


async def write(call: Any, message: Any) -> None:
    """The other side may have hung up."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(message)


async def registered(call: Any, info: ReplicaInfo) -> None:
    await call.write(pb.WorkUp(register=register_to_pb(info)))
    answer = await call.read()
    assert answer.WhichOneof("kind") == "registered"


@pytest.mark.parametrize("method", ["Work", "Generate", "PoolStatus", "NoSuchMethod"])
async def test_without_the_token_no_method_reads_a_byte(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor tells whether it exists: more than the port takes of anybody is not read either."""
    huge = b"\x00" * (10 * LIMITS.max_message_bytes)
    async with undisturbed() as (parts, endpoint):
        for token in ("", "guessed", endpoint.token[:-1], endpoint.token + "0"):
            async with endpoint.channel() as channel:
                ask = channel.unary_unary(f"{SERVICE}/{method}")
                metadata = (("authorization", token),) if token else ()
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ask(huge, metadata=metadata)
                assert refused.value.code() is CODE.UNAUTHENTICATED
        assert parts.driver.num_streams == 2
        assert endpoint.token not in caplog.text


async def test_refusals_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="deployments")
    async with undisturbed(300) as (_, endpoint), endpoint.channel() as channel:
        stub = pb_grpc.CoordinatorServiceStub(channel)
        for _ in range(100):
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.PoolStatus(public_pb.PoolStatusRequest())
    told = [r for r in caplog.records if "without the token" in r.getMessage()]
    assert len(told) == 7  # 1, 2, 4 ... 64


async def test_huge_headers_harm_nobody() -> None:
    huge = tuple((f"x-{number}", "x" * 1000) for number in range(1000))
    async with undisturbed(300) as (_, endpoint), endpoint.channel() as channel:
        for _ in range(5):
            call = pb_grpc.CoordinatorServiceStub(channel).PoolStatus(
                public_pb.PoolStatusRequest(), metadata=(*endpoint.metadata, *huge)
            )
            assert await call.code() is CODE.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00" * 3000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99,
    ],
)
async def test_bytes_that_are_no_http2_harm_nobody(garbage: bytes) -> None:
    async with undisturbed() as (parts, endpoint):
        host, _, port = endpoint.address.rpartition(":")
        guests = [await asyncio.open_connection(host, int(port)) for _ in range(50)]
        for _, writer in guests:
            writer.write(garbage)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        assert parts.driver.num_streams == 2
        for _, writer in guests:
            writer.close()


async def test_a_connection_that_says_nothing_is_dropped() -> None:
    limits = PortLimits(handshake_timeout_ms=300)
    async with cell(PLAIN, port_limits=limits) as parts:
        assert parts.endpoint is not None
        host, _, port = parts.endpoint.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.read()  # returns when the other side has hung up
        writer.close()


async def test_a_connection_without_a_stream_is_dropped() -> None:
    limits = PortLimits(idle_timeout_ms=300)
    async with cell(PLAIN, port_limits=limits) as parts:
        assert parts.endpoint is not None
        async with parts.endpoint.channel() as channel:
            await channel.channel_ready()
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


@pytest.mark.parametrize("method", ["Work", "Generate"])
@pytest.mark.parametrize("is_greeted", [False, True])
async def test_what_is_no_protobuf_ends_its_stream_alone(method: str, is_greeted: bool) -> None:
    async with undisturbed() as (parts, endpoint):
        async with stream(endpoint, method, encode=bytes) as call:
            if is_greeted and method == "Work":
                first = pb.WorkUp(register=register_to_pb(information()))
                await call.write(first.SerializeToString())
                await until(lambda: "guest" in parts.driver.replicas)
            await write(call, b"\xff\xff\xff\xff")
            await end_of(call)
        await until(lambda: parts.driver.num_streams == 2)


async def test_a_message_over_the_bound_ends_its_stream_alone() -> None:
    """It is a proper one; below the bound the stream would go on."""
    async with undisturbed() as (parts, endpoint):
        async with stream(endpoint, "Generate") as call:
            for num_bytes in (0, 1):
                name = "x" * (LIMITS.max_message_bytes * num_bytes + 1)
                abort = public_pb.AbortRequest(request_id=name)
                await call.write(pb.GenerateUp(abort=abort))
                if not num_bytes:
                    await until_told(call, name)
            await end_of(call)
        await until(lambda: parts.driver.num_streams == 2)


async def until_told(call: Any, aborted: str) -> None:
    while aborted not in [outcome.request_id for outcome in (await call.read()).aborts]:
        pass


async def test_who_never_registers_is_dropped() -> None:
    async with undisturbed() as (parts, endpoint), contextlib.AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(stream(endpoint, "Work")) for _ in range(8)]
        codes = await asyncio.gather(*map(end_of, calls))
        assert set(codes) == {CODE.DEADLINE_EXCEEDED}
        assert set(parts.driver.replicas) == {"t0"}


async def test_more_streams_than_the_port_takes_are_refused() -> None:
    async with undisturbed() as (parts, endpoint), contextlib.AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(stream(endpoint, "Generate")) for _ in range(60)]
        firsts = [asyncio.create_task(call.read()) for call in calls]
        done, _ = await asyncio.wait(firsts, timeout=5)
        refused = [task for task in done if task.exception() is not None]
        assert parts.driver.num_streams <= LIMITS.max_streams
        assert len(refused) == len(calls) - (LIMITS.max_streams - 2)
        code = refused[0].exception().code()  # type: ignore[union-attr]
        assert code is CODE.RESOURCE_EXHAUSTED


def older(info: ReplicaInfo) -> pb.Register:
    message = register_to_pb(info)
    message.protocol_version -= 1
    return message


def nobody(info: ReplicaInfo) -> pb.Register:
    message = register_to_pb(info)
    message.role = pb.ROLE_UNSPECIFIED
    return message


@pytest.mark.parametrize(
    ("introduction", "reason"),
    [
        (pb.Register(), "protocol version 0"),
        (older(information()), "run different releases"),
        (nobody(information()), "unknown role"),
        (register_to_pb(information(model_digest="another model")), "another model"),
        (register_to_pb(information(vocab_size=51)), "vocab_size 51"),
        (register_to_pb(information(fingerprint="x", numerics=Numerics.EXACT)), "fingerprint"),
        (register_to_pb(information(kv_cache_spec=FullAttentionSpec(0))), "block_size"),
        (register_to_pb(information(num_blocks=-1)), "num_blocks"),
        (register_to_pb(information(max_model_len=0)), "max_model_len"),
        (register_to_pb(information("")), "replica_id"),
        (register_to_pb(information("a\nforged line of the log")), "printable"),
        (register_to_pb(information(fingerprint="x" * 2000)), "at most 1024"),
    ],
)
async def test_a_replica_that_does_not_fit_is_told_why_and_kept_out(
    introduction: pb.Register, reason: str
) -> None:
    async with undisturbed() as (parts, endpoint), stream(endpoint, "Work") as call:
        await call.write(pb.WorkUp(register=introduction))
        assert await end_of(call) is CODE.FAILED_PRECONDITION
        assert reason in await call.details()
        assert set(parts.driver.replicas) == {"t0"}


async def test_whatever_comes_instead_of_an_introduction_is_refused() -> None:
    async with undisturbed() as (parts, endpoint):
        for first in (pb.WorkUp(drain=pb.Drain()), pb.WorkUp(result=pb.GroupResult())):
            async with stream(endpoint, "Work") as call:
                await call.write(first)
                assert await end_of(call) is CODE.FAILED_PRECONDITION
        async with stream(endpoint, "Work") as call:
            await call.done_writing()
            assert await end_of(call) is CODE.FAILED_PRECONDITION
        assert set(parts.driver.replicas) == {"t0"}


Spoil = Callable[[pb.GroupResult], object]


async def leased(call: Any) -> GroupLease:
    while (message := await call.read()).WhichOneof("kind") != "lease":
        pass
    return lease_from_pb(message.lease, "guest")


def answer_to(lease: GroupLease, role: Role) -> pb.GroupResult:
    message = pb.GroupResult()
    write_result(message, FakeReplica(role).execute(lease))
    return message


@contextlib.asynccontextmanager
async def trusted_guest() -> AsyncIterator[tuple[Cell, Any, pb.GroupResult]]:
    """A target with the token, a request that was leased to it, and what it should answer. Whatever
    it does answer, the client gets the ids of plain decoding."""
    async with undisturbed() as (parts, endpoint):
        client = next(iter(parts.clients.values()))
        async with stream(endpoint, "Work") as call:
            await registered(call, information())
            asked = request("leased to the guest", 30)
            answer = asyncio.create_task(collect(client, asked))
            lease = await leased(call)
            yield parts, call, answer_to(lease, Role.TARGET)
        assert await answer == expected(asked)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: setattr(answer, "epoch", answer.epoch + 1),
        lambda answer: setattr(answer, "lease_id", answer.lease_id + 1000),
        lambda answer: None,
    ],
    ids=["another epoch", "another lease", "the same again"],
)
async def test_replayed_answers_are_dropped(spoil: Spoil) -> None:
    async with trusted_guest() as (parts, call, right):
        await call.write(pb.WorkUp(result=right))
        await leased(call)
        again = pb.GroupResult()
        again.CopyFrom(right)
        spoil(again)
        again.token_ids = pack_ids([7] * len(unpack_ids(right.token_ids)))
        for _ in range(3):
            await call.write(pb.WorkUp(result=again))
        await until(lambda: parts.driver.scheduler.counters().num_stale_results == 3)
        assert "guest" in parts.driver.replicas


def shape(place: int, value: int) -> Spoil:
    """Of the first row: status, cached_len, number of tokens, number of accepted tokens."""

    def spoil(answer: pb.GroupResult) -> None:
        numbers = list(unpack_ids(answer.shapes))
        numbers[place] = value
        answer.shapes = pack_ids(numbers)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: setattr(answer, "token_ids", pack_ids([-1])),
        lambda answer: setattr(answer, "token_ids", pack_ids([50])),
        lambda answer: setattr(answer, "token_ids", b""),
        lambda answer: setattr(answer, "token_ids", answer.token_ids[:-1]),
        lambda answer: setattr(answer, "shapes", answer.shapes[:-1]),
        lambda answer: setattr(answer, "shapes", b""),
        lambda answer: setattr(answer, "seconds", float("nan")),
        lambda answer: setattr(answer, "seconds", -1.0),
        lambda answer: setattr(answer, "held_s", float("inf")),
        shape(0, 77),
        shape(1, -1),
        shape(1, 2**31 - 1),
        shape(2, 5),
        shape(3, -1),
    ],
)
async def test_a_replica_that_answers_nonsense_loses_its_stream_and_no_client_a_token(
    spoil: Spoil,
) -> None:
    async with trusted_guest() as (parts, call, right):
        spoil(right)
        await write(call, pb.WorkUp(result=right))
        await end_of(call)
        await until(lambda: set(parts.driver.replicas) == {"t0"})


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 4))]


def mutated(message: Any, random_: random.Random) -> bytes:
    raw = bytearray(message.SerializeToString())
    for _ in range(random_.randint(1, 8)):
        raw[random_.randrange(len(raw))] = random_.randrange(256)
    return bytes(raw)


@pytest.mark.parametrize("seed", SEEDS)
async def test_mutated_submissions_harm_nobody(seed: int) -> None:
    random_ = random.Random(seed)
    async with undisturbed(300) as (parts, endpoint):
        for number in range(50):
            whole = request(f"guest {number}", 20, emitted_token_ids=(1, 2))
            message = pb.GenerateUp(submit=submit_to_pb(whole, resume=True))
            async with stream(endpoint, "Generate", encode=bytes) as call:
                await call.read()
                await write(call, mutated(message, random_))
                await call.done_writing()
                await end_of(call)
            assert parts.driver.failure is None


@pytest.mark.parametrize("seed", SEEDS)
async def test_mutated_answers_harm_nobody(seed: int) -> None:
    random_ = random.Random(seed)
    async with undisturbed(300) as (parts, endpoint):
        client = next(iter(parts.clients.values()))
        asked = request("leased to guests", 300)
        answer = asyncio.create_task(collect(client, asked))
        for number in range(20):
            async with stream(endpoint, "Work", encode=bytes) as call:
                info = information(f"guest {number}", role=Role.DRAFT)
                first = pb.WorkUp(register=register_to_pb(info))
                await call.write(first.SerializeToString())
                await call.read()
                lease = GroupLease(
                    lease_id=1,
                    epoch=parts.driver.epoch,
                    replica_id="",
                    role=Role.DRAFT,
                    rows=(),
                    ttl_s=1,
                )
                right = answer_to(lease, Role.DRAFT)
                right.shapes, right.token_ids = pack_ids([1, 2, 1, 0]), pack_ids([3])
                right.sequence_ids.append(1)
                await write(call, mutated(pb.WorkUp(result=right), random_))
                await call.done_writing()
                await end_of(call)
            assert parts.driver.failure is None
        assert await answer == expected(asked)
