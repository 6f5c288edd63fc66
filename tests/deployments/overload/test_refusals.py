"""Who is refused for now learns when to come back, through what Serve's gRPC proxy passes on."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from deployments.config.client_limits import ClientLimits
from specdec.v1 import generation_pb2 as pb
from tests.deployments.ingress.test_grpc_api import GREEDY, FakeContext, api


class ProxiedCall:
    """What a client sees of a stream: Serve passes a context on with each message, and of one that
    ends with an exception only code and details."""

    def __init__(self) -> None:
        self.messages: list[pb.GenerateResponse] = []
        self.code = grpc.StatusCode.OK
        self.trailers: dict[str, str | bytes] = {}

    async def read(self, calls: object, message: pb.GenerateRequest, context: FakeContext) -> None:
        try:
            async for part in calls.generate(message, context):  # type: ignore[attr-defined]
                self.messages.append(part)
                self.code, self.trailers = context.code or self.code, dict(context.trailers)
        except Exception:
            self.code = context.code or grpc.StatusCode.INTERNAL

    @property
    def retry_after_s(self) -> float:
        packed = self.trailers["grpc-status-details-bin"]
        assert isinstance(packed, bytes)
        info = error_details_pb2.RetryInfo()
        details = status_pb2.Status.FromString(packed).details
        assert [detail.Unpack(info) for detail in details].count(True) == 1
        return float(info.retry_delay.ToMicroseconds()) / 1e6


@pytest.mark.parametrize("num_choices", [1, 2])
async def test_a_refused_stream_says_when_to_come_back(num_choices: int) -> None:
    async with api(keys=("one",), limits=ClientLimits(requests_per_minute=2)) as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY, n=num_choices)
        for _ in range(2 // num_choices):
            first = ProxiedCall()
            await first.read(calls, message, FakeContext(key="one"))
            assert first.code is grpc.StatusCode.OK
        refused = ProxiedCall()
        await refused.read(calls, message, FakeContext(key="one"))
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 0 < refused.retry_after_s <= 60
        assert not any(part.token_ids or part.finish_reason for part in refused.messages)


async def test_any_refusal_has_one_empty_message_with_the_trailers() -> None:
    async with api(keys=("one",)) as (calls, _):
        refused = ProxiedCall()
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY)
        await asyncio.wait_for(refused.read(calls, message, FakeContext(key="x")), 5)
        assert refused.code is grpc.StatusCode.UNAUTHENTICATED
        assert refused.messages == [pb.GenerateResponse()]
        assert "grpc-status-details-bin" in refused.trailers
