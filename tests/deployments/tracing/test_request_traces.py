"""A request's trace through a whole cell in one process: from the client's span to every round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import context as otel
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import StatusCode

from tests.deployments.coordinator.test_cell import DRAFTING, until
from tests.deployments.http_server import completion, server, stream
from tests.deployments.tracing.memory import (
    CLIENT_ID,
    HEADERS,
    NOT_SAMPLED,
    TRACE_ID,
    Spans,
    attributes_of,
    id_of,
    parent_id_of,
    told,
)

PROMPT = "HELLO"
CHAT = {"model": "fake", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 20}


def assert_connected(spans: Sequence[ReadableSpan]) -> None:
    """One trace, whose only parent from outside is the client's span."""
    assert {span.context.trace_id for span in spans if span.context} == {TRACE_ID}
    known = {id_of(span) for span in spans}
    outside = [parent_id_of(span) for span in spans if parent_id_of(span) not in known]
    assert outside == [CLIENT_ID]


async def settled(spans: Spans, names: set[str]) -> None:
    """Spans of the last answers follow those answers."""
    await until(lambda: {span.name for span in spans.ended} >= names)


async def test_a_completion_is_one_trace_from_the_client_to_every_round() -> None:
    spans = Spans()
    async with server(config=DRAFTING, drafts=1, tracer=spans.tracer) as (client, _):
        answer = await client.post("/v1/completions", json=completion(), headers=HEADERS)
        assert answer.status_code == 200
        names = {"specdec.pool", "specdec.verify", "specdec.draft", "specdec.prefill"}
        await settled(spans, names)
        assert (
            attributes_of(spans.one("text_completion fake"))["gen_ai.response.id"]
            == (answer.json()["id"])
        )
    assert_connected(spans.ended)
    root = spans.one("text_completion fake")
    pool = spans.one("specdec.pool")
    assert parent_id_of(root) == CLIENT_ID
    assert parent_id_of(pool) == id_of(root)
    for name in ("specdec.queue", "specdec.prefill", "specdec.draft", "specdec.verify"):
        assert {parent_id_of(span) for span in spans.named(name)} == {id_of(pool)}
    states = {span.context.trace_state.to_header() for span in spans.ended if span.context}
    assert states == {"vendor=opaque"}


async def test_the_span_says_what_the_conventions_ask_for() -> None:
    spans = Spans()
    async with server(tracer=spans.tracer) as (client, _):
        body = completion(temperature=0.5, top_p=0.9, top_k=7, seed=3, frequency_penalty=0.25)
        answer = await client.post("/v1/completions", json=body, headers=HEADERS)
        usage = answer.json()["usage"]
        root = spans.one("text_completion fake")
        assert root.kind is trace.SpanKind.SERVER
        said = attributes_of(root)
        expected = {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "specdec",
            "gen_ai.system": "specdec",
            "gen_ai.request.model": "fake",
            "gen_ai.response.model": "fake",
            "gen_ai.request.max_tokens": 20,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 0.9,
            "gen_ai.request.top_k": 7,
            "gen_ai.request.seed": 3,
            "gen_ai.request.frequency_penalty": 0.25,
            "gen_ai.request.stream": False,
            "gen_ai.usage.input_tokens": usage["prompt_tokens"],
            "gen_ai.usage.prompt_tokens": usage["prompt_tokens"],
            "gen_ai.usage.output_tokens": usage["completion_tokens"],
            "gen_ai.usage.completion_tokens": usage["completion_tokens"],
            "gen_ai.response.finish_reasons": ("length",),
            "http.route": "/v1/completions",
        }
        assert expected.items() <= said.items()
        lasted_s = (root.end_time - root.start_time) / 1e9  # type: ignore[operator]
        first = said["gen_ai.response.time_to_first_chunk"]
        assert first == said["gen_ai.latency.time_to_first_token"]
        assert 0 < first < lasted_s  # type: ignore[operator]
        assert "error.type" not in said


async def test_a_trace_shows_nothing_of_prompt_and_answer() -> None:
    spans = Spans()
    async with server(config=DRAFTING, drafts=1, tracer=spans.tracer) as (client, _):
        answer = await client.post(
            "/v1/chat/completions",
            json=CHAT | {"stop": ["~~"], "user": "lovelace"},
            headers=HEADERS,
        )
        text = answer.json()["choices"][0]["message"]["content"]
        await settled(spans, {"specdec.pool", "specdec.verify"})
        for span in spans.ended:
            for secret in (PROMPT, text, "~~", "lovelace"):
                assert secret not in told(span)
    assert spans.one("chat fake")


async def test_a_stream_ends_its_span_with_its_last_piece() -> None:
    spans = Spans()
    async with server(tracer=spans.tracer) as (client, _):
        client.headers.update(HEADERS)
        await stream(client, "/v1/chat/completions", CHAT)
        said = attributes_of(spans.one("chat fake"))
        assert said["gen_ai.request.stream"] is True
        assert said["gen_ai.usage.output_tokens"] == 20


async def test_choices_are_one_span_and_a_pool_span_each() -> None:
    spans = Spans()
    async with server(tracer=spans.tracer) as (client, _):
        body = completion(prompt=["AB", "CDE"], n=2, temperature=1.0, max_tokens=4)
        answer = await client.post("/v1/completions", json=body, headers=HEADERS)
        usage = answer.json()["usage"]
        await until(lambda: len(spans.named("specdec.pool")) == 4)
        said = attributes_of(spans.one("text_completion fake"))
        assert said["gen_ai.request.choice.count"] == 2
        assert said["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
        assert said["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
        assert said["gen_ai.response.finish_reasons"] == ("length",) * 4
    root = id_of(spans.one("text_completion fake"))
    assert {parent_id_of(span) for span in spans.named("specdec.pool")} == {root}


@pytest.mark.parametrize("headers", [{}, {"traceparent": NOT_SAMPLED}, {"traceparent": "nonsense"}])
async def test_what_is_not_sampled_leaves_no_span_and_travels_nowhere(
    headers: dict[str, str],
) -> None:
    spans = Spans()
    async with server(config=DRAFTING, drafts=1, tracer=spans.tracer) as (client, parts):
        submitted = []
        original = parts.driver.submit

        def noting(*args: Any, **named: Any) -> None:
            submitted.append(named["trace"])
            original(*args, **named)

        parts.driver.submit = noting  # type: ignore[method-assign]
        answer = await client.post("/v1/completions", json=completion(), headers=headers)
        assert answer.status_code == 200
        assert submitted == [None]
    assert spans.ended == ()


async def test_without_a_client_that_traces_the_sampler_decides() -> None:
    spans = Spans(ALWAYS_ON)
    async with server(tracer=spans.tracer) as (client, _):
        await client.post("/v1/completions", json=completion())
    assert spans.one("text_completion fake").parent is None


async def test_the_caller_s_mistake_is_named_and_is_no_failure() -> None:
    spans = Spans()
    async with server(tracer=spans.tracer) as (client, _):
        answer = await client.post(
            "/v1/completions", json=completion(max_tokens=-1), headers=HEADERS
        )
        assert answer.status_code == 400
    (root,) = spans.ended
    assert attributes_of(root)["error.type"] == "InvalidRequestError"
    assert root.status.status_code is StatusCode.UNSET


async def test_a_stranger_makes_no_spans() -> None:
    spans = Spans()
    async with server(tracer=spans.tracer, keys=("k",)) as (client, _):
        answer = await client.post("/v1/completions", json=completion(), headers=HEADERS)
        assert answer.status_code == 401
    assert spans.ended == ()


async def test_serve_s_own_span_comes_between_the_client_and_ours() -> None:
    spans = Spans()
    serves = Spans().tracer.start_span("replica_handle_request", propagate.extract(HEADERS))
    async with server(tracer=spans.tracer) as (client, _):
        otel.attach(trace.set_span_in_context(serves, otel.Context()))
        await client.post("/v1/completions", json=completion(), headers=HEADERS)
    root = spans.one("text_completion fake")
    assert root.parent == serves.get_span_context()
    assert root.parent.trace_id == TRACE_ID
