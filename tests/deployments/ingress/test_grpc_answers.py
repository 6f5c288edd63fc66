"""Reasoning and tool calls over gRPC are those that HTTP tells of the same answer."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from deployments.api.grpc.service import GrpcApi
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from specdec.v1 import generation_pb2 as pb
from tests.deployments.answering import (
    CHANNELS,
    CHATML,
    HERMES,
    TOOL,
    AnsweringPool,
    chat,
    client_of,
    service,
    text_model,
)
from tests.deployments.http.test_answers import ANALYSIS, CALL, COMMENTARY, END, THOUGHT
from tests.deployments.ingress.test_client_resume import service_of
from tests.deployments.ingress.test_grpc_api import FakeContext

REASONS = {
    "stop": pb.FINISH_REASON_STOP,
    "length": pb.FINISH_REASON_LENGTH,
    "tool_calls": pb.FINISH_REASON_TOOL_CALLS,
}
PB_TOOL = pb.Tool(
    name="weather",
    parameters='{"type": "object", "properties": {"city": {"type": "string"}}}',
)
NAMED = {"type": "function", "function": {"name": "weather"}}
ANSWERS: dict[str, tuple[Any, str, str, dict[str, Any], dict[str, Any], int]] = {
    "all of them": (HERMES, CHATML, f"{THOUGHT}Look.\n{CALL}\n{CALL}{END}", {}, {}, 300),
    "channels": (CHANNELS, "<|start|>assistant", f"{ANALYSIS}{COMMENTARY}", {}, {}, 300),
    "opened by the prompt": (
        HERMES, f"{CHATML}<think>\n", f"So.\n</think>\n\nFour.{END}", {}, {}, 300,
    ),
    "ended in its reasoning": (HERMES, CHATML, f"{THOUGHT}x{END}", {}, {}, 12),
    "one call": (
        HERMES, CHATML, f"{CALL}\n{CALL}{END}",
        {"parallel_tool_calls": False}, {"parallel_tool_calls": False}, 300,
    ),
    "left out": (
        HERMES, CHATML, f"{THOUGHT}{CALL}{END}",
        {"include_reasoning": False}, {"include_reasoning": False}, 300,
    ),
    "declined": (
        HERMES, CHATML, f"{CALL}{END}", {"tool_choice": "none"}, {"tool_choice": "none"}, 300,
    ),
    "demanded": (
        HERMES, CHATML, f"{THOUGHT}{CALL}{END}",
        {"tool_choice": "required"}, {"tool_choice": "required"}, 300,
    ),
    "named": (
        HERMES, CHATML, f"{THOUGHT}{CALL}{END}",
        {"tool_choice": NAMED}, {"tool_choice": "weather"}, 300,
    ),
}  # fmt: skip


def api_of(served: GenerationService) -> GrpcApi:
    return GrpcApi(served, Access({}, "127.0.0.1"), max_body_bytes=10_000)


def request(max_tokens: int = 300, **fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        chat=pb.ChatMessages(
            messages=[pb.ChatMessage(role="user", content="hi")], tools=[PB_TOOL], **fields
        ),
        sampling=pb.SamplingParams(max_tokens=max_tokens, seed=3, logprobs=0),
    )


def told(parts: list[pb.GenerateResponse]) -> dict[str, Any]:
    return {
        "content": "".join(part.text for part in parts),
        "reasoning": "".join(part.reasoning for part in parts),
        "calls": [
            {"name": call.name, "arguments": call.arguments}
            for part in parts
            for call in part.tool_calls
        ],
        "finish_reason": parts[-1].finish_reason,
        "usage": (parts[-1].usage.completion_tokens, parts[-1].usage.reasoning_tokens),
        "shows_tokens": any(part.token_ids or part.HasField("logprobs") for part in parts),
    }


def over_http(served: GenerationService, **fields: Any) -> dict[str, Any]:
    asked = {"tools": [TOOL], "logprobs": True, "return_token_ids": True} | fields
    with client_of(served) as client:
        body = chat(client, **asked)
    (choice,) = body["choices"]
    message, usage = choice["message"], body["usage"]
    details = usage["completion_tokens_details"]
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning", ""),
        "calls": [call["function"] for call in message.get("tool_calls", [])],
        "finish_reason": REASONS[choice["finish_reason"]],
        "usage": (usage["completion_tokens"], details["reasoning_tokens"]),
        "shows_tokens": "token_ids" in choice,
    }


@pytest.mark.parametrize("name", ANSWERS)
async def test_both_protocols_tell_the_same(name: str) -> None:
    answer_format, begins, text, http, grpc_fields, max_tokens = ANSWERS[name]
    if "tool_choice" in http:
        pytest.importorskip("llguidance")
    expected = over_http(service(answer_format, text, begins=begins), max_tokens=max_tokens, **http)
    calls = api_of(service(answer_format, text, begins=begins))
    asked, context = request(max_tokens, **grpc_fields), FakeContext()
    whole = await calls.generate_once(asked, context)
    assert context.code is None, context.details
    parts = [part async for part in calls.generate(asked, context)]
    assert told([whole]) == told(parts) == expected
    ids = [call.id for call in whole.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


async def test_a_resumed_stream_tells_the_rest() -> None:
    """Cut behind every message: in the reasoning, in marks and in calls."""
    calls = api_of(service(HERMES, f"{THOUGHT}Look.\n{CALL}\n{CALL}{END}"))
    first = [part async for part in calls.generate(request(), FakeContext())]
    whole = told(first)
    for count in range(1, len(first)):
        again = request()
        ids = [i for part in first[:count] for i in part.token_ids]
        again.resume.CopyFrom(pb.Resume(token_ids=[pb.TokenIds(ids=ids)], seed=first[0].seed))
        rest = [part async for part in calls.generate(again, FakeContext())]
        assert told([*first[:count], *rest]) == whole


async def test_a_demand_reaches_the_pool_as_the_same_grammar() -> None:
    pytest.importorskip("llguidance")
    text = text_model(HERMES)
    pool = AnsweringPool(text, [END])
    served = service_of(text, pool)
    over_http(served, tool_choice="required")
    await api_of(served).generate_once(request(tool_choice="required"), FakeContext())
    first, second = [one.params.grammar for one in pool.asked]
    assert first == second is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool_choice": "rain"}, "there is no tool 'rain'"),
        ({"tool_choice": "required", "tools": []}, "tool_choice=required needs tools"),
    ],
)
async def test_a_demand_that_cannot_be_met_is_refused(fields: dict[str, Any], message: str) -> None:
    context = FakeContext()
    tools = {"tools": [PB_TOOL]} | fields
    chat_fields = pb.ChatMessages(messages=[pb.ChatMessage(role="user", content="hi")], **tools)
    await api_of(service(HERMES, END)).generate_once(pb.GenerateRequest(chat=chat_fields), context)
    assert context.code == grpc.StatusCode.INVALID_ARGUMENT
    assert message in context.details


async def test_a_prompt_is_not_read() -> None:
    asked = pb.GenerateRequest(prompt="hi", sampling=pb.SamplingParams(max_tokens=300))
    whole = await api_of(service(HERMES, f"{THOUGHT}{CALL}{END}")).generate_once(
        asked, FakeContext()
    )
    assert (whole.text, whole.reasoning) == (THOUGHT + CALL, "")
    assert whole.finish_reason == pb.FINISH_REASON_STOP
