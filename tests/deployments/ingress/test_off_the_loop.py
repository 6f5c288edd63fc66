"""Tools, calls and schemas of any size are read and rendered where no short request waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.api.grpc import chat as grpc_chat
from deployments.api.grpc.service import GrpcApi
from deployments.api.http import schemas as requests
from deployments.api.http.routes import build_http_app
from deployments.config.service import SpecMetrics
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.text import structured_output
from deployments.text.chat_rendering import compile_template
from specdec.v1 import generation_pb2 as pb
from tests.deployments.fake_text import fake_text_model
from tests.deployments.ingress.test_client_resume import ScriptedPool, service_of
from tests.deployments.ingress.test_grpc_api import FakeContext

pytest.importorskip("llguidance")

LOCAL, MAX_BYTES = Access({}, "127.0.0.1"), 10_000_000
SHOWS_ALL = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "{{ m.content }}{{ (m.tool_calls or []) | tojson }}{% endfor %}"
)
LONG = "A" * 30_000
USER = {"role": "user", "content": "HI"}
CALL = {"function": {"name": "f", "arguments": json.dumps({"a": LONG})}}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL = {"type": "function", "function": {"name": "f", "description": LONG}}
SCHEMA = {"type": "object", "properties": {f"field {i}": {"type": "null"} for i in range(900)}}

HTTP: dict[str, dict[str, Any]] = {
    "tools": {"messages": [USER], "tools": [TOOL]},
    "calls": {"messages": [USER, ANSWER, USER]},
    "schema": {"messages": [USER], "structured_outputs": {"json": SCHEMA}},
}
CHATS: dict[str, dict[str, Any]] = {
    "tools": {"chat": pb.ChatMessages(tools=[pb.Tool(name="f", description=LONG)])},
    "calls": {
        "chat": pb.ChatMessages(
            messages=[
                pb.ChatMessage(
                    role="assistant",
                    tool_calls=[pb.ToolCall(name="f", arguments=CALL["function"]["arguments"])],
                )
            ]
        )
    },
    "schema": {
        "chat": pb.ChatMessages(),
        "sampling": pb.SamplingParams(
            structured_output=pb.StructuredOutput(json_schema=json.dumps(SCHEMA))
        ),
    },
}


async def over_http(service: GenerationService, name: str) -> None:
    app = build_http_app(service, LOCAL, max_body_bytes=MAX_BYTES, metrics=SpecMetrics.NONE)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        body = HTTP[name] | {"max_tokens": 1}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        if name != "schema":
            counted = await client.post("/tokenize", json=HTTP[name])
            assert counted.json()["count"] > len(LONG)


async def over_grpc(service: GenerationService, name: str) -> None:
    asked = pb.GenerateRequest(**CHATS[name])
    asked.sampling.max_tokens = 1
    asked.chat.messages.append(pb.ChatMessage(role="user", content="HI"))
    context = FakeContext()
    await GrpcApi(service, LOCAL, max_body_bytes=MAX_BYTES).generate_once(asked, context)
    assert context.code is None, context.details


@pytest.mark.parametrize("name", HTTP)
@pytest.mark.parametrize("ask", [over_http, over_grpc])
async def test_no_long_part_of_a_chat_is_work_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any], name: str
) -> None:
    """Nor is it work of the thread that renders short chats."""
    threads: dict[str, set[str]] = {}

    def watch(holder: Any, function: str) -> None:
        original = getattr(holder, function)

        def noted(*args: Any, **fields: Any) -> Any:
            threads.setdefault(function, set()).add(threading.current_thread().name)
            return original(*args, **fields)

        monkeypatch.setattr(holder, function, noted)

    text = replace(fake_text_model(), max_model_len=100_000, template=compile_template(SHOWS_ALL))
    watch(text.backend, "encode_batch_fast")
    for holder in (requests, grpc_chat):
        watch(holder, "checked_tools")
    watch(structured_output, "checked_json")
    await ask(service_of(text, ScriptedPool((1,))), name)
    seen = set.union(*threads.values())
    assert seen
    assert threading.current_thread().name not in seen
    if name != "schema":
        assert threads["encode_batch_fast"] == {"lane-1_0"}
