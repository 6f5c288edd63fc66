"""Messages of an assistant, as chat templates write them and as a reader returns them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.text.answers.reading import AnswerDelta, Answers
from deployments.text.chat_messages import TemplateInput
from deployments.text.chat_rendering import ChatTemplate

ARGUMENTS: Mapping[str, Any] = {
    "text": 'it\'s "<b>" & ünï\n{x}: </i> 🙂',
    "digits": "5",
    "count": 3,
    "ratio": 1.5,
    "flag": True,
    "nothing": None,
    "nested": {"a": None, "b": [True, "x: y", {"c": -2}], "d e": "</p>, f:g"},
    "list": ["1", 2],
}
_TYPES = {
    "text": "string",
    "digits": "string",
    "count": "integer",
    "ratio": "number",
    "flag": "boolean",
    "nothing": "integer",
    "nested": "object",
    "list": "array",
}
TOOLS: Sequence[Mapping[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Do it.",
            "parameters": {
                "type": "object",
                "properties": {
                    key: {"type": kind, "nullable": key == "nothing"} for key, kind in types.items()
                },
                "required": list(types),
            },
        },
    }
    for name, types in (("get_weather", _TYPES), ("other", {}))
]

USER = {"role": "user", "content": "Hi."}
IN_CONTENT = "content"
"""The field of reasoning if it is a part of the content."""


@dataclass(frozen=True, slots=True)
class Message:
    """An assistant's message."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def as_json(self, *, reasoning_field: str, call_id: str = "callid{:03}") -> dict[str, Any]:
        """Return the message in OpenAI's form. Arguments are an object, as templates get them."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning and reasoning_field == IN_CONTENT:
            thought = {"type": "thinking", "thinking": self.reasoning}
            message["content"] = [thought, {"type": "text", "text": self.content}]
        elif self.reasoning:
            message[reasoning_field] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call_id.format(place),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for place, (name, arguments) in enumerate(self.calls)
            ]
        return message


def read(answers: Answers, prompt: str, pieces: Iterable[str]) -> Message:
    """Return what a reader finds in an answer that comes in pieces."""
    return message_of(found_in(answers, prompt, pieces))


def found_in(answers: Answers, prompt: str, pieces: Iterable[str]) -> AnswerDelta:
    reader = answers.reader(prompt, TOOLS)
    found = AnswerDelta()
    for piece in pieces:
        found += reader.add(piece)
    return found + reader.flush()


def message_of(found: AnswerDelta) -> Message:
    calls = tuple((call.name, json.loads(call.arguments)) for call in found.calls)
    return Message(found.content, found.reasoning, calls)


def rendered(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
    **variables: Any,
) -> str:
    marks = {"bos_token": "<bos>", "eos_token": "<eos>"}
    return template.render(
        TemplateInput(
            messages=list(messages),
            tools=TOOLS,
            add_generation_prompt=add_generation_prompt,
            variables=marks | variables,
        )
    )


def written(
    template: ChatTemplate,
    message: Mapping[str, Any],
    anchors: Sequence[str],
    ends: Sequence[str],
    **variables: Any,
) -> tuple[str, str]:
    """Return the prompt and the text of an answer with this message, up to its first end mark.

    If a template writes a past answer in another way than its generation prompt begins one, the
    prompt ends with the last of `anchors`.
    """
    prompt = rendered(template, [USER], add_generation_prompt=True, **variables)
    whole = rendered(template, [USER, message], add_generation_prompt=False, **variables)
    if not whole.startswith(prompt):
        pairs = enumerate(zip(prompt, whole, strict=False))
        shared_length = next(place for place, (ours, theirs) in pairs if ours != theirs)
        begun = [prompt.rfind(one, 0, shared_length) + len(one) for one in anchors if one in prompt]
        prompt = prompt[: max(begun, default=0)]
        assert prompt, "the template writes an answer that its prompt does not begin"
        assert whole.startswith(prompt)
    answer = whole[len(prompt) :]
    found = [answer.find(end) for end in ends if end in answer]
    return prompt, answer[: min(found, default=len(answer))]
