"""A conversation over gRPC gives the template what the same conversation over HTTP gives it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest

from deployments.api.grpc.chat import chat_of
from deployments.api.http.schemas import ChatBody
from deployments.text.chat_messages import checked_messages
from deployments.text.chat_rendering import ChatOptions, compile_template
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError
from tests.deployments.fake_text import fake_text_model
from tests.deployments.ingress.test_grpc_api import FakeContext, api

TEXT = fake_text_model()
USER = pb.ChatMessage(role="user", content="HI")


def over_http(**fields: Any) -> tuple[list[dict[str, Any]], ChatOptions]:
    body = ChatBody.model_validate(fields)
    return checked_messages(body.messages), body.chat_options


def test_every_field_means_the_same_in_both_protocols() -> None:
    call = pb.ToolCall(id="1", name="f", arguments='{"a": 1}')
    chat = pb.ChatMessages(
        messages=[
            pb.ChatMessage(role="user", content="HI", name="Ada"),
            pb.ChatMessage(role="assistant", tool_calls=[call, pb.ToolCall(name="g")]),
            pb.ChatMessage(role="tool", content="2", tool_call_id="1"),
            pb.ChatMessage(role="assistant", content="Two", reasoning="1 + 1"),
        ],
        tools=[pb.Tool(name="f", description="Adds.", parameters='{"type": "object"}')],
        continue_final_message=True,
        reasoning_effort="none",
        chat_template_kwargs='{"mood": "loud", "size": 2, "left_out": null}',
        chat_template="{{ x }}",
        add_special_tokens=True,
    )
    calls = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"type": "function", "function": {"name": "g", "arguments": ""}},
    ]
    function = {"name": "f", "description": "Adds.", "parameters": {"type": "object"}}
    assert chat_of(chat) == over_http(
        messages=[
            {"role": "user", "content": "HI", "name": "Ada"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "content": "2", "tool_call_id": "1"},
            {"role": "assistant", "content": "Two", "reasoning": "1 + 1"},
        ],
        tools=[{"type": "function", "function": function}],
        continue_final_message=True,
        reasoning_effort="none",
        chat_template_kwargs={"mood": "loud", "size": 2, "left_out": None},
        chat_template="{{ x }}",
        add_special_tokens=True,
    )
    messages = [{"role": "user", "content": "HI"}]
    assert chat_of(pb.ChatMessages(messages=[USER])) == over_http(messages=messages)
    declined = pb.ChatMessages(messages=[USER], add_generation_prompt=False)
    assert chat_of(declined) == over_http(messages=messages, add_generation_prompt=False)


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        (pb.ChatMessages(), "at least 1 message"),
        (pb.ChatMessages(messages=[pb.ChatMessage(content="x")]), r"messages\.0\.role"),
        (pb.ChatMessages(messages=[USER], chat_template_kwargs="[]"), "must be a JSON object"),
        (pb.ChatMessages(messages=[USER], chat_template_kwargs="[" * 90_000), "too deep"),
        (pb.ChatMessages(messages=[USER], tools=[pb.Tool(name="f", parameters="{")]), "not JSON"),
        (pb.ChatMessages(messages=[USER], tools=[pb.Tool(name="f", parameters="3")]), "parameters"),
        (
            pb.ChatMessages(
                messages=[USER], add_generation_prompt=True, continue_final_message=True
            ),
            "exclude each other",
        ),
    ],
)
def test_a_conversation_that_means_nothing_is_refused(chat: pb.ChatMessages, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        chat_of(chat)


async def test_what_the_template_drops_is_an_invalid_argument() -> None:
    async with api() as (calls, _):
        known = "{% for m in messages if m.role in ['user', 'system'] %}"
        silent = compile_template(known + "{{ m.content }}{% endfor %}")
        calls._service.text = replace(TEXT, template=silent)
        sampling = pb.SamplingParams(temperature=0, max_tokens=2)
        for role, code in (
            ("developer", None),
            ("user", None),
            ("critic", grpc.StatusCode.INVALID_ARGUMENT),
            ("", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            chat = pb.ChatMessages(messages=[pb.ChatMessage(role=role, content="HI"), USER])
            context = FakeContext()
            asked = pb.GenerateRequest(chat=chat, sampling=sampling)
            answer = await calls.generate_once(asked, context)
            assert context.code == code, role
            if code is None:
                assert answer.usage.prompt_tokens == 4
            else:
                assert "messages.0" in context.details
