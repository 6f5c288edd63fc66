"""Conversations over HTTP: what clients replay, what templates drop, what errors name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from deployments.text.chat_rendering import compile_template
from tests.deployments.http_server import TEXT, server

USER = {"role": "user", "content": "HI"}


def chat(*messages: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), "max_tokens": 2, "return_token_ids": True} | fields


async def prompts_or_errors(*bodies: dict[str, Any], template: str = "") -> list[Any]:
    """Return for each body the prompt's text, or the status and the error."""
    told: list[Any] = []
    text = replace(TEXT, template=compile_template(template)) if template else TEXT
    async with server(text=text) as (client, _):
        for body in bodies:
            answer = await client.post("/v1/chat/completions", json=body)
            if answer.status_code == 200:
                (choice,) = answer.json()["choices"]
                told.append(TEXT.decode(choice["prompt_token_ids"]))
            else:
                told.append((answer.status_code, answer.json()["error"]))
    return told


async def test_a_second_turn_may_replay_whatever_an_answer_had() -> None:
    replayed: list[dict[str, Any]] = [
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "assistant", "content": None, "refusal": None, "audio": None, "annotations": []},
        {"role": "assistant", "content": "", "reasoning": "X", "id": "1", "cache_control": {}},
        {"role": "assistant", "content": "", "reasoning_content": "X", "function_call": None},
    ]
    told = await prompts_or_errors(*(chat(USER, message, USER) for message in replayed))
    assert told == ["HIHI"] * len(replayed)


async def test_a_developer_is_the_system_and_parts_are_lines() -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    (told,) = await prompts_or_errors(chat({"role": "developer", "content": parts}, USER))
    assert told == TEXT.decode(TEXT.encode("A\nBHI"))


async def test_what_the_template_drops_is_a_400_that_names_the_field() -> None:
    template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    bodies = [
        chat({"role": "system", "content": "X"}, USER),
        chat(USER, {"role": "assistant", "tool_calls": [call]}),
        chat(USER, tools=[{"type": "function", "function": {"name": "f"}}]),
        chat(USER),
    ]
    *errors, told = await prompts_or_errors(*bodies, template=template)
    assert told == "HI"
    params = ["messages.0.content", "messages.1.tool_calls.0", "tools.0"]
    assert [(status, error["param"]) for status, error in errors] == [(400, p) for p in params]
    assert all(error["code"] == "unsupported_value" for _, error in errors)


async def test_deep_arguments_in_a_history_are_a_400() -> None:
    function = {"name": "f", "arguments": "[" * 90_000}
    body = chat(USER, {"role": "assistant", "tool_calls": [{"function": function}]})
    ((status, error),) = await prompts_or_errors(body)
    assert status == 400
    assert error["param"] == "messages.1.tool_calls.0.function.arguments"
    assert "nested too deeply" in error["message"]


@pytest.mark.parametrize("prefill", ["<", "HI", "HI ", " H", "E"])
async def test_the_prompt_ends_in_the_prefill(prefill: str) -> None:
    template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    body = chat(USER, {"role": "assistant", "content": prefill}, continue_final_message=True)
    assert await prompts_or_errors(body, template=template) == [
        TEXT.decode(TEXT.encode(f"<HI><{prefill}"))
    ]


async def test_the_effort_and_thinking_reach_the_template() -> None:
    template = "{{ messages[0].content }}{{ reasoning_effort }}:{{ enable_thinking }}"
    bodies = [
        chat(USER),
        chat(USER, reasoning_effort=None, chat_template_kwargs=None),
        chat(USER, reasoning_effort="LOW"),
        chat(USER, enable_thinking=True),
        chat(USER, reasoning_effort="none"),
        chat(USER, reasoning_effort="none", enable_thinking=True),
        chat(USER, enable_thinking=True, chat_template_kwargs={"enable_thinking": False}),
        chat(USER, chat_template_kwargs={"reasoning_effort": "HIGH", "enable_thinking": None}),
    ]
    ends = [":", ":", "LOW:", ":True", "none:False", "none:True", ":False", "HIGH:"]
    shown = [TEXT.decode(TEXT.encode(f"HI{end}")) for end in ends]
    assert await prompts_or_errors(*bodies, template=template) == shown


async def test_unknown_fields_of_messages_are_told_once() -> None:
    async with server() as (client, _):
        messages = [
            USER | {"foo": 1, "id": "1"},
            {"role": "assistant", "content": "A", "foo": 2, "reasoning": "X"},
            USER | {"bar": None, "annotations": []},
        ]
        answer = await client.post("/v1/chat/completions", json=chat(*messages))
        names = ["messages.foo", "messages.bar"]
        assert answer.json()["warnings"] == [f"unknown field {n} is ignored" for n in names]
