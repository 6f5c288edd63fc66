"""Assertions that the bodies of answers and errors have the shapes that OpenAI documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

_REASONING = ("reasoning", "reasoning_content")
"""Both names of the reasoning, as some clients know only one of them."""
_REASONS = {"stop", "length", "tool_calls"}


def check_answer(asked: Mapping[str, Any], text: str) -> None:
    """A whole answer, or a stream if the request asks for one."""
    is_chat = "messages" in asked
    if asked.get("stream"):
        entries = _stream_entries(asked, text, is_chat)
    else:
        entries = _whole_entries(json.loads(text), is_chat)
    for message, reason in entries:
        assert reason in _REASONS
        _check_message(asked, message, reason)


def check_error(text: str) -> None:
    """Each error has a message for people and a code for programs."""
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert isinstance(error["type"], str)
    assert isinstance(error["code"], str)
    assert error["param"] is None or isinstance(error["param"], str)


def _whole_entries(body: Mapping[str, Any], is_chat: bool) -> Iterator[tuple[Any, str]]:
    _check_head(body, "chat.completion" if is_chat else "text_completion")
    _check_usage(body["usage"])
    for place, choice in enumerate(body["choices"]):
        assert choice["index"] == place
        message = choice["message"] if is_chat else {"content": choice["text"]}
        assert not is_chat or message["role"] == "assistant"
        assert all("index" not in call for call in message.get("tool_calls", ()))
        yield message, choice["finish_reason"]


def _stream_entries(
    asked: Mapping[str, Any], text: str, is_chat: bool
) -> Iterator[tuple[Any, str]]:
    chunks = _events(text)
    for chunk in chunks:
        _check_head(chunk, "chat.completion.chunk" if is_chat else "text_completion")
    assert len({chunk["id"] for chunk in chunks}) == 1
    if (asked.get("stream_options") or {}).get("include_usage"):
        *chunks, last = chunks
        assert last["choices"] == []
        _check_usage(last["usage"])
    assert all(not chunk.get("usage") for chunk in chunks)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ends = [choice for choice in choices if choice["finish_reason"]]
    assert all("tool_calls" not in choice.get("delta", {}) for choice in ends), "calls come before"
    for index in range(max(choice["index"] for choice in choices) + 1):
        yield _joined([choice for choice in choices if choice["index"] == index], is_chat)


def _events(text: str) -> list[dict[str, Any]]:
    events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def _joined(choices: list[Any], is_chat: bool) -> tuple[dict[str, Any], str]:
    """One choice's message, put together as clients do; its role comes first and once."""
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons[:-1] == [None] * (len(reasons) - 1), "the last chunk has the finish reason"
    if not is_chat:
        return {"content": "".join(choice["text"] for choice in choices)}, reasons[-1]
    deltas = [choice["delta"] for choice in choices]
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    calls: dict[int, dict[str, Any]] = {}
    for entry in (entry for delta in deltas for entry in delta.get("tool_calls", ())):
        call = calls.setdefault(entry["index"], entry | {"function": {"name": "", "arguments": ""}})
        for name, part in entry["function"].items():
            call["function"][name] += part or ""
    assert list(calls) == list(range(len(calls)))
    message: dict[str, Any] = {"content": _text(deltas, "content") or None}
    for name in _REASONING:
        if any(name in delta for delta in deltas):
            message[name] = _text(deltas, name)
    return message | ({"tool_calls": list(calls.values())} if calls else {}), reasons[-1]


def _text(deltas: list[Any], name: str) -> str:
    return "".join(delta.get(name) or "" for delta in deltas)


def _check_head(body: Mapping[str, Any], kind: str) -> None:
    assert body["object"] == kind
    assert isinstance(body["id"], str)
    assert isinstance(body["created"], int)
    assert isinstance(body["model"], str)


def _check_usage(usage: Mapping[str, Any]) -> None:
    assert usage["prompt_tokens"] > 0
    assert usage["completion_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def _check_message(asked: Mapping[str, Any], message: Mapping[str, Any], reason: str) -> None:
    calls = message.get("tool_calls", [])
    assert "tool_calls" not in message or calls, "a message without calls has no such field"
    is_named = isinstance(asked.get("tool_choice"), dict)
    assert (reason == "tool_calls") == (bool(calls) and not is_named)
    assert calls or message["content"]
    thoughts = [message[name] for name in _REASONING if name in message]
    assert not thoughts or (len(set(thoughts)), len(thoughts)) == (1, len(_REASONING))
    assert all(thoughts), "a message without reasoning has no such field"
    schemas = {tool["function"]["name"]: tool["function"] for tool in asked.get("tools") or ()}
    for call in calls:
        assert call["type"] == "function"
        assert call["id"]
        arguments = json.loads(call["function"]["arguments"])
        jsonschema.validate(arguments, schemas[call["function"]["name"]].get("parameters", {}))
    if asked.get("tool_choice") not in (None, "none", "auto"):
        assert calls, "a call was demanded"
    wanted = asked.get("response_format") or {"type": "text"}
    if wanted["type"] == "json_object":
        assert isinstance(json.loads(message["content"]), dict)
    elif wanted["type"] == "json_schema" and not calls:
        jsonschema.validate(json.loads(message["content"]), wanted["json_schema"]["schema"])
