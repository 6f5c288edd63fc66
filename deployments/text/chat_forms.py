"""Forms of one conversation that mean the same, for templates that expect different ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from hashlib import blake2b
from itertools import combinations

from deployments.text.template_input import Message

_REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")


def forms(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield the conversation as it is, then with one change, with two and with three."""
    tried: list[list[Message]] = []
    for size in range(4):
        for changes in combinations(_CHANGES, size):
            form = reduce(lambda form, change: change(form), changes, messages)
            if form not in tried:
                tried.append(form)
                yield form


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
    return _with_calls(messages, _with_text_arguments)


def _with_text_arguments(call: Message) -> Message:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _short_ids(messages: list[Message]) -> list[Message]:
    """Give calls IDs of nine letters and digits. Mistral's templates refuse all others."""
    shortened = _with_calls(messages, lambda call: _with_short(call, "id"))
    return [_with_short(message, "tool_call_id") for message in shortened]


def _with_short(holder: Message, name: str) -> Message:
    call_id = holder.get(name)
    if not isinstance(call_id, str) or (len(call_id) == 9 and call_id.isalnum()):
        return holder
    return {**holder, name: blake2b(call_id.encode(), digest_size=8).hexdigest()[:9]}


def _with_calls(messages: list[Message], change: Callable[[Message], Message]) -> list[Message]:
    """Return the messages with each of their calls changed."""
    return [
        {**m, "tool_calls": list(map(change, m["tool_calls"]))} if m.get("tool_calls") else m
        for m in messages
    ]


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
    _short_ids,
    _one_part_each,
    _null_content,
    _text_arguments,
    _without_reasoning,
)
