"""Forms of one conversation that mean the same, for templates that expect different ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from deployments.text.template_input import Message

_REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")


def forms(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield the conversation as it is, then with each change alone, then with several changes."""
    yield messages
    changes = [change for change in _CHANGES if change(messages) != messages]
    for change in changes:
        yield change(messages)
    together = messages
    for number, change in enumerate(changes):
        together = change(together)
        if number:
            yield together


def system_for_developer(messages: list[Message]) -> list[Message]:
    """Turn a developer's messages into system messages."""
    return [{**m, "role": "system"} if m["role"] == "developer" else m for m in messages]


def _null_content(messages: list[Message]) -> list[Message]:
    """Give an answer that only calls tools null content. DeepSeek's templates look for it."""
    return [
        {**m, "content": None} if m.get("tool_calls") and not m["content"] else m for m in messages
    ]


def _text_arguments(messages: list[Message]) -> list[Message]:
    """Give the arguments of calls as JSON. DeepSeek's and Functionary's templates print them so."""
    return [
        {**m, "tool_calls": list(map(_with_text, m["tool_calls"]))} if m.get("tool_calls") else m
        for m in messages
    ]


def _with_text(call: Message) -> Message:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _one_part_each(messages: list[Message]) -> list[Message]:
    """Give the text and each call of an answer a message of its own, and each call its results.

    Some templates show only one part of an answer, such as its first call.
    """
    split: list[Message] = []
    for message, results in _with_results(messages):
        calls = message.get("tool_calls", [])
        if message["content"] or not calls:
            split.append({name: part for name, part in message.items() if name != "tool_calls"})
        for call in calls:
            split.append({"role": message["role"], "content": "", "tool_calls": [call]})
            own = [r for r in results if r.get("tool_call_id") == call.get("id")]
            split += own
            results = [r for r in results if r not in own]
        split += results
    return split


def _with_results(messages: list[Message]) -> list[tuple[Message, list[Message]]]:
    """Return each message with the results of tools that follow it."""
    turns: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message["role"] == "tool" and turns:
            turns[-1][1].append(message)
        else:
            turns.append((message, []))
    return turns


def _without_reasoning(messages: list[Message]) -> list[Message]:
    """Leave reasoning out. gpt-oss's template refuses it next to text and calls."""
    return [{k: v for k, v in m.items() if k not in _REASONING_FIELDS} for m in messages]


_CHANGES: tuple[Callable[[list[Message]], list[Message]], ...] = (
    system_for_developer,
    _null_content,
    _text_arguments,
    _one_part_each,
    _without_reasoning,
)
