"""Drawn conversations: all that was sent is in the prompt, or the request is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.chat_templates import theirs
from deployments.text.chat_messages import TemplateInput, checked_messages
from deployments.text.chat_rendering import ChatTemplate, forms, known_roles, render
from specdec_core.errors import InvalidRequestError
from tests.deployments.text.stand_ins import STAND_INS, VARIABLES

MIDDLES = [
    " ",
    "\n\n",
    "Größe 日本 🙂",
    "\"quoted\" 'text' \\ <b>&amp;",
    "</think>",
    "<think>x</think>",
    "<tool_response>",
    "<|im_end|>\n<|im_start|>system\n",
    "{{ messages }} {% endif %}",
    "CONTINUE_FINAL_MESSAGE_TAG ",
]
ENDS = ["", " ", "\n", " \n\t"]
ROLES = ["system", "developer", "user", "assistant", "tool", "critic", "user", "assistant"]
TOOL_NAMES = ["weather", "population"]


class Words:
    """Words that occur once, so that a prompt that contains one contains what it was put in."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.must_be_shown: list[str] = []
        self._draw = draw
        self._numbers = itertools.count()

    def word(self) -> str:
        self.must_be_shown.append(f"word{next(self._numbers)}x")
        return self.must_be_shown[-1]

    def text(self, role: str) -> str:
        """Both ends must be shown; an answer may lose reasoning at its beginning."""
        start, end = self._draw(st.sampled_from(ENDS)), self._draw(st.sampled_from(ENDS))
        first = "First" if role == "assistant" else self.word()
        return start + first + self._draw(st.sampled_from(MIDDLES)) + self.word() + end

    def call(self, number: int) -> dict[str, Any]:
        keys = self._draw(st.integers(0, 2))
        values = [self.word(), 3, None, {"deep": [self.word()]}]
        arguments = {self.word(): self._draw(st.sampled_from(values)) for _ in range(keys)}
        # A value that was not chosen is not sent.
        sent = json.dumps(arguments)
        self.must_be_shown = [w for w in self.must_be_shown if w in sent or w not in str(values)]
        name = self._draw(st.sampled_from(TOOL_NAMES)) + self.word()
        return {"id": f"call{number:05}", "function": {"name": name, "arguments": sent}}


def _message(words: Words, draw: Any, number: int, *, alternates: bool) -> dict[str, Any]:
    role = ["user", "assistant"][number % 2] if alternates else draw(st.sampled_from(ROLES))
    message: dict[str, Any] = {"role": role, "content": words.text(role)}
    if role == "assistant":
        calls = [words.call(number * 10 + i) for i in range(draw(st.sampled_from([0, 0, 1, 2])))]
        message["tool_calls"] = calls or draw(st.sampled_from([None, []]))
        if draw(st.booleans()):
            message[draw(st.sampled_from(["reasoning", "reasoning_content"]))] = "Thought."
        if draw(st.integers(0, 3)) == 0:
            words.must_be_shown = [w for w in words.must_be_shown if w not in message["content"]]
            message["content"] = draw(st.sampled_from([None, ""]))
    if role == "tool":
        message["tool_call_id"] = f"call{(number - 1) * 10:05}"
    return message


def _tool(words: Words) -> dict[str, Any]:
    return {"type": "function", "function": {"name": words.word(), "description": "Tells."}}


@st.composite
def histories(draw: Any) -> tuple[TemplateInput, list[str]]:
    words = Words(draw)
    count, alternates = draw(st.integers(1, 5)), draw(st.booleans())
    messages = [_message(words, draw, number, alternates=alternates) for number in range(count)]
    continues = draw(st.integers(0, 5)) == 0
    given_input = TemplateInput(
        messages=checked_messages(messages),
        tools=[_tool(words) for _ in range(draw(st.sampled_from([0, 0, 1, 2])))],
        variables=VARIABLES | draw(st.sampled_from([{}, {"enable_thinking": False}])),
        add_generation_prompt=not continues and draw(st.booleans()),
        continues_final_message=continues,
    )
    return given_input, words.must_be_shown


def check(template: ChatTemplate, given_input: TemplateInput, words: list[str]) -> bool:
    """Whether the conversation was rendered."""
    chosen = template.for_tools(given_input.tools)
    base = replace(given_input, messages=known_roles(chosen, given_input.messages))
    try:
        prompt = render(template, given_input)
    except InvalidRequestError as error:
        _check_refusal(chosen, base, words, str(error))
        return False
    assert [word for word in words if word not in prompt] == []
    equal_forms = forms(list(base.messages))
    assert any(prompt == _theirs(chosen, replace(base, messages=form)) for form in equal_forms)
    return True


def _check_refusal(
    template: ChatTemplate, given_input: TemplateInput, words: list[str], reason: str
) -> None:
    """A refused conversation is refused by transformers too, or loses something there."""
    assert len(reason) > 20
    rendered = _theirs(template, given_input)
    if rendered is not None and "it has tool_calls" not in reason:
        assert [word for word in words if word not in rendered] != []


def _theirs(template: ChatTemplate, given_input: TemplateInput) -> str | None:
    try:
        return theirs(template.source, given_input)
    except Exception:  # a template may fail in any way
        return None


def _check_drawn(count: int) -> None:
    rendered = dict.fromkeys(STAND_INS, 0)

    @settings(max_examples=count, deadline=None)
    @given(histories())
    def run(drawn: tuple[TemplateInput, list[str]]) -> None:
        for name, template in STAND_INS.items():
            rendered[name] += check(template, *drawn)

    run()
    assert min(rendered.values()) >= count // 50, rendered


def test_all_that_is_sent_is_in_the_prompt_or_refused() -> None:
    _check_drawn(200)


@pytest.mark.nightly
def test_all_that_is_sent_is_in_the_prompt_or_refused_twenty_thousand_times() -> None:
    _check_drawn(20_000)
