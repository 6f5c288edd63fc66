"""Whose deadline passes in the queue is told so, leaves the queue, and nobody works for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import grpc
import httpx
import pytest

from deployments.api.grpc.service import GrpcApi
from deployments.api.http.routes import build_http_app
from deployments.config.service import SpecMetrics
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.request_limits import RequestLimits
from specdec.v1 import generation_pb2 as pb
from specdec_core.config import SchedulerConfig, SpeculationConfig
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cell import Cell, cell
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.http_server import completion
from tests.deployments.ingress.test_grpc_api import TEXT, FakeContext

ONE_SEAT = SchedulerConfig(window=1, max_group_size=1)


class StandingReplica(FakeReplica):
    """Runs no lease until it is let go."""

    def __init__(self) -> None:
        super().__init__(Role.TARGET)
        self.may_go = threading.Event()

    def execute(self, lease: GroupLease) -> GroupResult:
        self.may_go.wait()
        return super().execute(lease)


@contextlib.asynccontextmanager
async def full_service(
    limits: RequestLimits | None = None,
) -> AsyncIterator[tuple[GenerationService, Cell, StandingReplica]]:
    """Its one seat is taken by a request that goes on at the end."""
    async with cell(ONE_SEAT) as parts:
        replica = StandingReplica()
        parts.start_replica("t0", Role.TARGET, replica)
        pool = await parts.client()
        while pool.state is None or not pool.state.num_targets:
            await asyncio.sleep(0.005)
        service = GenerationService(
            TEXT, pool, model_name="fake", speculation=SpeculationConfig(), limits=limits
        )
        seated = Request(
            request_id="seated",
            prompt_token_ids=(1, 2),
            params=SamplingParams(max_tokens=3, temperature=0.0),
            end_token_ids=frozenset(),
        )
        answer = asyncio.create_task(_tokens(service, seated))
        await counted(parts, num_waiting=0, num_running=1)
        try:
            yield service, parts, replica
        finally:
            replica.may_go.set()
        assert len(await answer) == 3


async def _tokens(service: GenerationService, request: Request) -> list[int]:
    return [i async for event in service.pool.generate(request) for i in event.token_ids]


async def counted(parts: Cell, *, num_waiting: int, num_running: int) -> None:
    while True:
        counters = parts.driver.scheduler.counters()
        if (counters.num_waiting, counters.num_running) == (num_waiting, num_running):
            return
        await asyncio.sleep(0.005)


async def nobody_worked_for_it(parts: Cell, replica: StandingReplica) -> None:
    """When the seat is free again, the one that sat there is the only one that was ever run."""
    await counted(parts, num_waiting=0, num_running=1)
    replica.may_go.set()
    await counted(parts, num_waiting=0, num_running=0)
    assert [rules.prompt_len for rules in replica.rules_seen] == [2]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_deadline_of_the_message_ends_the_wait_over_grpc(is_stream: bool) -> None:
    async with full_service() as (service, parts, replica):
        calls = GrpcApi(service, Access({}, "127.0.0.1"), max_body_bytes=10_000)
        message = pb.GenerateRequest(prompt="HELLO", deadline_ms=200)
        context = FakeContext()
        if is_stream:
            told = [part async for part in calls.generate(message, context)]
            assert told == [pb.GenerateResponse()]
            assert "not finished within 0.2 s" in context.details
        else:
            await calls.generate_once(message, context)
        assert context.code is grpc.StatusCode.DEADLINE_EXCEEDED
        await nobody_worked_for_it(parts, replica)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_operators_time_limit_ends_the_wait_over_http(is_stream: bool) -> None:
    async with full_service(RequestLimits(timeout_s=0.2)) as (service, parts, replica):
        async with _client(service) as client:
            answer = await client.post("/v1/completions", json=completion(stream=is_stream))
        # The headers of a stream leave when it is queued.
        assert answer.status_code == (200 if is_stream else 408)
        assert "not finished within 0.2 s" in answer.text
        assert "timeout_error" in answer.text
        await nobody_worked_for_it(parts, replica)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_gives_up_waiting_leaves_the_queue(is_stream: bool) -> None:
    """As Serve tells it - also when its own x-request-timeout-seconds is over: a cancelled call."""
    async with full_service() as (service, parts, replica), _client(service) as client:
        body = completion(stream=is_stream)
        call = asyncio.create_task(client.post("/v1/completions", json=body))
        await counted(parts, num_waiting=1, num_running=1)
        call.cancel()
        await nobody_worked_for_it(parts, replica)


def _client(service: GenerationService) -> httpx.AsyncClient:
    access = Access({}, "127.0.0.1")
    app = build_http_app(service, access, max_body_bytes=10_000, metrics=SpecMetrics.NONE)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
