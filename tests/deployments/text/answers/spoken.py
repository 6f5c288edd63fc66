"""Answers as a model writes them, from what the tables of formats say of writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat, CallFormat, ParameterFormat
from deployments.text.answers.reading import Answers
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from tests.deployments.text.answers.messages import Message

PAIRS: Mapping[str, str] = {
    "hermes": "qwen3",
    "qwen3_coder": "qwen3",
    "llama3_json": "deepseek_r1",
    "mistral": "mistral",
    "glm45": "glm45",
    "glm47": "glm45",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v31": "deepseek_v3",
    "deepseek_v32": "deepseek_v3",
    "deepseek_v4": "deepseek_v3",
    "openai": "openai_gptoss",
    "gemma4": "gemma4",
    "granite": "granite",
    "kimi_k2": "kimi_k2",
    "minimax_m2": "minimax_m2",
    "seed_oss": "seed_oss",
}
"""A format of reasoning for each format of calls."""
ONE_CALL = {"openai"}
"""Formats whose calls end the answer."""
_PREAMBLE = {"openai": ("<|channel|>commentary<|message|>", "<|end|><|start|>assistant")}
"""Texts around content that calls follow."""


def format_of(calls: str, reasoning: str | None = None) -> AnswerFormat:
    name = PAIRS[calls] if reasoning is None else reasoning
    return AnswerFormat(calls=CALL_FORMATS[calls], reasoning=REASONING_FORMATS[name])


@cache
def answers_of(calls: str, reasoning: str | None = None) -> Answers:
    return Answers(format_of(calls, reasoning))


def spoken(calls: str, message: Message, *, opens_reasoning: bool = True) -> str:
    """Return the answer's text, without a mark that ends the answer."""
    answer_format = format_of(calls)
    reasoning, call_format = answer_format.reasoning, answer_format.calls
    assert reasoning is not None
    assert call_format is not None
    text = ""
    if message.reasoning:
        opening = reasoning.opening if opens_reasoning else ""
        text += opening + message.reasoning + reasoning.closing
    if message.content and message.calls:
        before, after = _PREAMBLE.get(calls, ("", "\n"))
        text += before + message.content + after
    elif message.content:
        text += reasoning.content_opening + message.content
    if message.calls:
        text += spoken_calls(call_format, message)
    return text


def spoken_calls(form: CallFormat, message: Message) -> str:
    texts = []
    for index, (name, arguments) in enumerate(message.calls):
        opening = form.opening.replace("{json_name}", json.dumps(name, ensure_ascii=False))
        opening = opening.replace("{name}", name).replace("{index}", str(index))
        texts.append(opening + _arguments(form.parameters, arguments) + form.closing)
    return form.before + form.between.join(texts) + form.after


def _arguments(form: ParameterFormat | None, arguments: Mapping[str, Any]) -> str:
    if form is None:
        return json.dumps(arguments, ensure_ascii=False)
    texts = []
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        opening = form.opening if is_text or form.other_opening is None else form.other_opening
        written = form.quote + value + form.quote if is_text else json.dumps(value)
        texts.append(opening.replace("{key}", key) + written + form.closing)
    return form.between.join(texts)
