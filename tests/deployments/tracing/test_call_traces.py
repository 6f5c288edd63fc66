"""A gRPC call's trace through a cell in one process, and what ends or outlives parts of it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from deployments.api.grpc.service import GrpcApi
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.observability.tracing.requests import RequestSpans
from specdec.v1 import generation_pb2 as pb
from specdec_core.messages import Role
from tests.deployments.cell import cell
from tests.deployments.coordinator.test_cell import DRAFTING, until
from tests.deployments.http_server import SPECULATION, TEXT
from tests.deployments.ingress.test_grpc_api import FakeContext
from tests.deployments.tracing.memory import HEADERS, Spans, attributes_of, id_of, parent_id_of
from tests.deployments.tracing.test_request_traces import PROMPT, assert_connected, settled


@contextlib.asynccontextmanager
async def api(spans: Spans) -> Any:
    async with cell(DRAFTING, tracer=spans.tracer) as parts:
        parts.start_replica("t0", Role.TARGET)
        parts.start_replica("d0", Role.DRAFT)
        pool = await parts.client()
        await until(lambda: pool.state is not None and pool.state.num_targets > 0)
        service = GenerationService(
            TEXT,
            pool,
            model_name="fake",
            speculation=SPECULATION,
            spans=RequestSpans(spans.tracer, model_name="fake"),
        )
        yield GrpcApi(service, Access({}, "127.0.0.1"), max_body_bytes=10_000), parts


class TracedContext(FakeContext):
    def invocation_metadata(self) -> list[tuple[str, str]]:
        return list(HEADERS.items())


GREEDY = pb.SamplingParams(temperature=0, max_tokens=20)


@pytest.mark.parametrize("method", ["Generate", "GenerateOnce"])
async def test_a_call_is_one_trace_too(method: str) -> None:
    spans = Spans()
    async with api(spans) as (calls, _):
        message = pb.GenerateRequest(prompt=PROMPT, sampling=GREEDY)
        if method == "Generate":
            async for _ in calls.generate(message, TracedContext()):
                pass
        else:
            await calls.generate_once(message, TracedContext())
        await settled(spans, {"specdec.pool", "specdec.draft", "specdec.verify"})
    assert_connected(spans.ended)
    said = attributes_of(spans.one("text_completion fake"))
    assert said["rpc.service"] == "specdec.v1.GenerationService"
    assert said["rpc.method"] == method
    assert said["gen_ai.request.stream"] is (method == "Generate")
    assert said["gen_ai.response.id"] == said["specdec.request_id"]


async def test_a_client_that_leaves_ends_every_span_of_its_request() -> None:
    spans = Spans()
    async with api(spans) as (calls, parts):
        message = pb.GenerateRequest(prompt=PROMPT, sampling=GREEDY)
        message.sampling.max_tokens = 400
        answers = calls.generate(message, TracedContext())
        await anext(answers)
        await answers.aclose()
        await settled(spans, {"specdec.pool"})
        assert not parts.driver.spans._by_sequence, "what has ended is forgotten"
    assert attributes_of(spans.one("text_completion fake"))["error.type"] == "cancelled"
    assert attributes_of(spans.one("specdec.pool"))["specdec.finish_reason"] == "abort"


async def test_a_request_that_a_second_coordinator_goes_on_with_stays_in_its_trace() -> None:
    spans = Spans()
    async with api(spans) as (calls, parts):
        message = pb.GenerateRequest(prompt=PROMPT, sampling=GREEDY)
        message.sampling.max_tokens = 300
        is_first = True
        async for _ in calls.generate(message, TracedContext()):
            if is_first:
                is_first = False
                await parts.kill_coordinator()
                await parts.start_coordinator()
        await until(lambda: len(spans.named("specdec.pool")) >= 1)
    root = id_of(spans.one("text_completion fake"))
    last = spans.named("specdec.pool")[-1]
    assert parent_id_of(last) == root
    assert attributes_of(last)["specdec.finish_reason"] == "length"
