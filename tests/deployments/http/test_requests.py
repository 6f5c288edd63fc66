"""What of a conversation reaches the chat template."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.http.requests import ChatBody, CompletionBody
from deployments.ingress.grpc_requests import ask_of
from deployments.text.chat_messages import checked_messages
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError


def test_a_cache_salt_is_passed_on_in_both_protocols() -> None:
    common = {"model": "m", "cache_salt": "tenant 7"}
    bodies = (
        CompletionBody(prompt="x", **common),
        ChatBody(messages=[{"role": "user", "content": "x"}], **common),
    )
    assert [body.ask().cache_salt for body in bodies] == ["tenant 7"] * 2
    assert ask_of(pb.GenerateRequest(prompt="x", cache_salt="tenant 7")).cache_salt == "tenant 7"
    assert CompletionBody(prompt="x").ask().cache_salt == ""


def test_role_content_and_name_are_passed_on_and_empty_fields_mean_nothing() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given: list[dict[str, Any]] = [
        {"role": "user", "content": parts, "name": "Ada"},
        {"role": "assistant", "content": "c", "name": None, "tool_calls": [], "refusal": None},
    ]
    assert checked_messages(given) == [
        {"role": "user", "content": "ab", "name": "Ada"},
        {"role": "assistant", "content": "c"},
    ]


def test_a_field_that_would_be_lost_is_refused() -> None:
    message = {"role": "assistant", "content": "", "audio": {"id": "1"}}
    with pytest.raises(InvalidRequestError, match=r"messages\.0\.audio is not supported yet"):
        checked_messages([message])


def test_calls_and_their_answers_are_passed_on_with_arguments_as_objects() -> None:
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    given: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
    ]
    told = {"name": "weather", "arguments": {"city": "Rome"}}
    assert checked_messages(given) == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": told}]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
    ]
    assert function["arguments"] == '{"city": "Rome"}'


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([{"id": "1"}], r"messages\.0\.tool_calls\.0\.function\.name is needed"),
        ([{"function": {"name": "f", "arguments": "{"}}], r"arguments is not JSON"),
    ],
)
def test_calls_that_say_nothing_are_refused(calls: list[Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        checked_messages([{"role": "assistant", "content": None, "tool_calls": calls}])
