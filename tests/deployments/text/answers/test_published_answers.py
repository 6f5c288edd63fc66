"""Answers that published chat templates write come back as the same messages.

SPECDEC_CHAT_TEMPLATES names a folder of `*.jinja` files, such as llama.cpp's models/templates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

import pytest

from deployments.text.answers.choosing import choose
from deployments.text.answers.formats import START_ANCHORS
from deployments.text.answers.reading import AnswerDelta, Answers, Begun
from deployments.text.chat_rendering import compile_template
from specdec_core.errors import InvalidRequestError
from tests.deployments.text.answers.messages import (
    ARGUMENTS,
    IN_CONTENT,
    TOOLS,
    USER,
    Message,
    read,
    rendered,
    written,
)

_FOLDER = os.environ.get("SPECDEC_CHAT_TEMPLATES", "")
_ENDS = (
    "<|im_end|>",
    "<eos>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<|call|>",
    "<|return|>",
    "[e~[",
    "<turn|>",
    "<|tool_response>",
    "<seed:eos>",
    "<|role_end|>",
    "\n</assistant>",
    "</assistant>",
    "\n\n<sep>",
)
"""Marks after an answer, with a template's layout before them."""


class Loss(Enum):
    """What a template leaves out or changes, or refuses."""

    REASONING = auto()
    REASONING_OF_TEXT = auto()
    """Reasoning of a message without calls."""
    CONTENT_OF_CALLS = auto()
    CONTENT_OF_CALLS_IS_REASONING = auto()
    CALLS = auto()
    """No call is written."""
    SECOND_CALL = auto()
    REFUSES_SECOND_CALL = auto()
    REFUSES_CONTENT_WITH_REASONING = auto()
    """Beside calls."""
    REFUSES_CALLS = auto()
    """The sandbox forbids what the template does."""
    REFUSES = auto()
    NESTED = auto()
    """Nested values become texts in Python's notation."""


_LOSSES: Mapping[str, frozenset[Loss]] = {
    name: frozenset(losses)
    for name, losses in {
        "ByteDance-Seed-OSS": [Loss.NESTED],
        "HuggingFaceTB-SmolLM3-3B": [Loss.REASONING, Loss.CALLS],
        "Kimi-K2-Instruct": [Loss.REASONING, Loss.REFUSES_CALLS],
        "Kimi-K2-Thinking": [Loss.REASONING, Loss.REFUSES_CALLS],
        "LFM2.5-Instruct": [Loss.REASONING, Loss.CALLS],
        "MiMo-VL": [Loss.REASONING],
        "Mistral-Small-3.2-24B-Instruct-2506": [Loss.REASONING, Loss.CONTENT_OF_CALLS],
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": [Loss.REASONING, Loss.CONTENT_OF_CALLS],
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": [Loss.REASONING, Loss.CONTENT_OF_CALLS],
        "Qwen-QwQ-32B": [Loss.REASONING],
        "Qwen-Qwen2.5-7B-Instruct": [Loss.REASONING],
        "Qwen3-Coder": [Loss.REASONING],
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": [Loss.REASONING, Loss.CALLS],
        # The content follows the calls' end mark, as an answer of its own.
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": [Loss.REASONING, Loss.CONTENT_OF_CALLS],
        "deepseek-ai-DeepSeek-V3.1": [Loss.REASONING],
        "google-gemma-4-31B-it-interleaved": [Loss.REASONING_OF_TEXT],
        "google-gemma-4-31B-it": [Loss.REASONING_OF_TEXT],
        "ibm-granite-granite-3.3-2B-Instruct": [Loss.REASONING, Loss.CALLS],
        "ibm-granite-granite-4.0": [Loss.REASONING],
        "ibm-granite-granite-4.1": [Loss.REASONING],
        "llama-cpp-deepseek-r1": [Loss.REFUSES],
        "llama-cpp-rwkv-world": [Loss.REASONING, Loss.CALLS],
        "meta-llama-Llama-3.1-8B-Instruct": [
            Loss.REASONING,
            Loss.CONTENT_OF_CALLS,
            Loss.REFUSES_SECOND_CALL,
        ],
        "meta-llama-Llama-3.2-3B-Instruct": [
            Loss.REASONING,
            Loss.CONTENT_OF_CALLS,
            Loss.REFUSES_SECOND_CALL,
        ],
        "meta-llama-Llama-3.3-70B-Instruct": [
            Loss.REASONING,
            Loss.CONTENT_OF_CALLS,
            Loss.REFUSES_SECOND_CALL,
        ],
        "mistralai-Mistral-Nemo-Instruct-2407": [Loss.REASONING, Loss.CONTENT_OF_CALLS],
        "moonshotai-Kimi-K2": [Loss.REASONING],
        "openai-gpt-oss-120b": [
            Loss.SECOND_CALL,
            Loss.CONTENT_OF_CALLS_IS_REASONING,
            Loss.REFUSES_CONTENT_WITH_REASONING,
        ],
        "unsloth-mistral-Devstral-Small-2507": [Loss.REASONING],
    }.items()
}
"""Losses by file; a template that is not listed loses nothing."""

_REASONING_FIELDS = {
    "openai-gpt-oss-120b": "thinking",
    "mistralai-Ministral-3-14B-Reasoning-2512": IN_CONTENT,
}
"""Fields of reasoning in messages, if not `reasoning_content`."""
_SPACE = {"Reka-Edge": " "}
"""White space that a template writes between the beginning of an answer and the answer."""
_NO_FORMAT_OF_CALLS = {
    "LFM2.5-8B-A1B",
    "NVIDIA-Nemotron-Nano-v2",
    "openbmb-MiniCPM5-1B",
    "llama-cpp-rwkv-world",
}
"""Templates that write calls, or whole answers, in a format that is not read."""

_CALL, _OTHER = ("get_weather", ARGUMENTS), ("other", {})
_MESSAGES = {
    "everything": Message("Sure.", "plan\n\n- <b>", (_CALL, _OTHER)),
    "call": Message("", "plan", (_CALL,)),
    "calls beside content": Message("Sure.", "", (_OTHER, _CALL)),
    "text": Message("Sure.\n\n- <b> & ü", "plan"),
}


def _expected(message: Message, losses: frozenset[Loss]) -> Message | None:
    """Return what a template with these losses keeps; None if it refuses the message."""
    content, reasoning, calls = message.content, message.reasoning, message.calls
    refuses = (
        Loss.REFUSES in losses
        or (Loss.REFUSES_CALLS in losses and calls)
        or (Loss.REFUSES_SECOND_CALL in losses and len(calls) > 1)
        or (Loss.REFUSES_CONTENT_WITH_REASONING in losses and calls and content and reasoning)
    )
    if refuses:
        return None
    if Loss.REASONING in losses or (Loss.REASONING_OF_TEXT in losses and not calls):
        reasoning = ""
    if calls and Loss.CONTENT_OF_CALLS_IS_REASONING in losses:
        content, reasoning = "", content or reasoning
    if calls and Loss.CONTENT_OF_CALLS in losses:
        content = ""
    if Loss.CALLS in losses:
        calls = ()
    if Loss.SECOND_CALL in losses:
        calls = calls[:1]
    if Loss.NESTED in losses:
        calls = tuple(
            (name, {key: str(v) if isinstance(v, dict | list) else v for key, v in args.items()})
            for name, args in calls
        )
    return replace(message, content=content, reasoning=reasoning, calls=calls)


_FILES = sorted(Path(_FOLDER).glob("*.jinja")) if _FOLDER else []


@pytest.mark.skipif(not _FOLDER, reason="SPECDEC_CHAT_TEMPLATES names no folder of templates")
def test_the_folder_has_templates() -> None:
    assert _FILES, f"{_FOLDER} has no template"


@pytest.mark.parametrize("kind", _MESSAGES)
@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_a_written_message_comes_back(file: Path, kind: str) -> None:
    source = file.read_text(encoding="utf-8")
    answer_format = choose(source).answer_format
    if answer_format is None or file.stem in _NO_FORMAT_OF_CALLS:
        return
    answers, template = Answers(answer_format), compile_template(source)
    message = _MESSAGES[kind]
    field = _REASONING_FIELDS.get(file.stem, "reasoning_content")
    as_json = message.as_json(reasoning_field=field)
    expected = _expected(message, _LOSSES.get(file.stem, frozenset()))
    for thinking in (True,) if message.reasoning else (True, False):
        variables = {"enable_thinking": thinking, "thinking": thinking}
        if expected is None:
            with pytest.raises(InvalidRequestError):
                written(template, as_json, START_ANCHORS, _ENDS, **variables)
            continue
        prompt, text = written(template, as_json, START_ANCHORS, _ENDS, **variables)
        text = text.removeprefix(_SPACE.get(file.stem, ""))
        assert read(answers, prompt, [text]) == expected
        assert read(answers, prompt, text) == expected, "letter by letter"


_TRAP = {
    "role": "tool",
    "name": "other",
    "tool_call_id": "callid000",
    "content": "<think> [THINK] <tool_call> <|channel|>analysis<|message|> <|channel>thought\n",
}
"""Result of a tool that opens reasoning and calls, which are no part of the answer."""


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_an_answer_begins_after_a_tools_result(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    answer_format = choose(source).answer_format
    losses = _LOSSES.get(file.stem, frozenset())
    is_left_out = losses & {Loss.REFUSES, Loss.REFUSES_CALLS} or file.stem in _NO_FORMAT_OF_CALLS
    if answer_format is None or is_left_out:
        return
    call = Message("", "plan", (_OTHER,))
    field = _REASONING_FIELDS.get(file.stem, "reasoning_content")
    prompt = rendered(
        compile_template(source),
        [USER, call.as_json(reasoning_field=field), _TRAP],
        add_generation_prompt=True,
        enable_thinking=True,
        thinking=True,
    )
    reader = Answers(answer_format).reader(prompt, TOOLS)
    reasoning = answer_format.reasoning
    is_open = reasoning is not None and prompt.strip().endswith(reasoning.opening.strip())
    assert (reader.begun is Begun.REASONING) == is_open
    text = f"x{reasoning.closing}Done." if is_open and reasoning else "Done."
    assert reader.add(text) + reader.flush() == AnswerDelta("Done.", "x" if is_open else "")
