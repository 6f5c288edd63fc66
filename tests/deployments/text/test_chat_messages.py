"""What clients send and replay as messages, and what the chat template is given of it."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.text.chat_messages import checked_messages
from specdec_core.errors import InvalidRequestError

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Rome"}'}}
GIVEN_CALL = CALL | {"function": {"name": "f", "arguments": {"city": "Rome"}}}


def one(**message: Any) -> dict[str, Any]:
    """Return the only message, checked."""
    (checked,) = checked_messages([message])
    return checked


def refusal(*messages: dict[str, Any]) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        checked_messages(list(messages))
    return caught.value


@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {},
        {"content": ""},
        {"content": []},
        {"content": None, "tool_calls": []},
        {"content": "", "tool_calls": None, "function_call": None, "refusal": None},
        {"content": None, "audio": None, "annotations": [], "id": "msg_1", "cache_control": {}},
        {"reasoning": None, "reasoning_content": "", "thinking": None, "name": None},
        {"reasoning_details": [{"type": "reasoning.text"}], "provider_specific_fields": {"a": 1}},
    ],
)
def test_an_answer_without_text_is_empty_whatever_its_client_adds(message: dict[str, Any]) -> None:
    assert one(role="assistant", **message) == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_has_the_names_that_transformers_gives_it(name: str) -> None:
    from transformers.utils.chat_template_utils import _alias_reasoning_fields

    message = {"role": "assistant", "content": "4", name: "2 + 2"}
    assert one(**message) == _alias_reasoning_fields([message])[0]


def test_text_parts_are_joined_by_line_ends_and_hints_are_left_out() -> None:
    parts: list[Any] = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "input_text", "text": "b"},
        "c",
        {"type": "output_text", "text": "d\n", "annotations": []},
        {"type": "refusal", "refusal": "e"},
    ]
    assert one(role="user", content=parts, name="Ada", id="7") == {
        "role": "user",
        "content": "a\nb\nc\nd\n\ne",
        "name": "Ada",
    }


def test_a_refusal_is_what_the_model_said() -> None:
    assert one(role="assistant", content=None, refusal="No.")["content"] == "No."
    assert one(role="assistant", content="", refusal="No.")["content"] == "No."


def test_calls_and_results_are_passed_on_with_arguments_as_objects() -> None:
    given: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"index": None}]},
        {"role": "tool", "content": [{"type": "text", "text": "sunny"}], "tool_call_id": "1"},
        {"role": "tool", "content": None, "tool_call_id": "2"},
    ]
    assert checked_messages(given) == [
        {"role": "assistant", "content": "", "tool_calls": [GIVEN_CALL]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
        {"role": "tool", "content": "", "tool_call_id": "2"},
    ]
    assert given[0]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'


@pytest.mark.parametrize("arguments", ["", " ", None, "null", "{}", {}])
def test_calls_without_arguments_have_an_empty_object(arguments: Any) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    (given_call,) = one(role="assistant", tool_calls=[call])["tool_calls"]
    assert given_call["function"] == {"name": "f", "arguments": {}}


@pytest.mark.parametrize(
    "arguments",
    [
        "[" * 90_000,
        "[" * 90_000 + "]" * 90_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
        "{",
        '"text"',
        "[]",
        "0",
        "false",
        3,
        [],
        False,
        '{"a": 1e999}',
        '{"a": NaN}',
        '{"a": "\\ud800"}',
    ],
)
def test_arguments_that_are_no_object_are_refused_where_they_are(arguments: Any) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    error = refusal({"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]})
    where = "messages.1.tool_calls.0.function.arguments"
    assert error.param == where
    assert str(error).startswith(where)
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ({"content": "x"}, "role", "invalid_type"),
        ({"role": "", "content": "x"}, "role", "invalid_type"),
        ({"role": 3, "content": "x"}, "role", "invalid_type"),
        ({"role": "user"}, "content", "missing_required_parameter"),
        ({"role": "system", "content": None}, "content", "missing_required_parameter"),
        ({"role": "user", "content": 3}, "content", "invalid_type"),
        ({"role": "user", "content": [[]]}, "content", "invalid_type"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "content", "unsupported_value"),
        ({"role": "user", "content": [{"text": "x"}]}, "content", "unsupported_value"),
        ({"role": "user", "content": [{"type": "text"}]}, "content.text", "invalid_type"),
        ({"role": "user", "content": "x", "name": 3}, "name", "invalid_type"),
        ({"role": "tool", "content": "x", "tool_call_id": 3}, "tool_call_id", "invalid_type"),
        ({"role": "assistant", "refusal": 3}, "refusal", "invalid_type"),
        ({"role": "assistant", "tool_calls": {"id": "1"}}, "tool_calls", "invalid_type"),
        (
            {"role": "assistant", "tool_calls": [{"id": "1"}]},
            "tool_calls.0.function.name",
            "missing_required_parameter",
        ),
        ({"role": "assistant", "audio": {"id": "1"}}, "audio", "unsupported_parameter"),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            "function_call",
            "unsupported_parameter",
        ),
        ({"role": "assistant", "content": "x", "prefix": True}, "prefix", "unsupported_parameter"),
    ],
)
def test_a_message_that_means_nothing_is_refused_by_its_field(
    message: dict[str, Any], param: str, code: str
) -> None:
    error = refusal({"role": "user", "content": "x"}, message)
    assert (error.param, error.code) == (f"messages.1.{param}", code)
    assert f"messages.1.{param}" in str(error)


def test_a_conversation_has_a_message() -> None:
    assert refusal().param == "messages"
