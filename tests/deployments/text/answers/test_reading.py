"""Readers split answers the same way wherever the text is cut, and lose nothing."""

from __future__ import annotations

import pytest

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.reading import Answers
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from tests.deployments.text.answers.messages import Message, read


def answers_of(calls: str | None, reasoning: str | None = None) -> Answers:
    return Answers(
        AnswerFormat(
            calls=CALL_FORMATS[calls] if calls else None,
            reasoning=REASONING_FORMATS[reasoning] if reasoning else None,
        )
    )


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("calls", "text"),
    [
        ("llama3_json", '{"name": "f", "parameters": {"a": "{x}: y {} z"}}'),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "{x}: y {} z"}'),
        ("granite", '<|tool_call|>[{"name": "f", "arguments": {"a": "{x}: y {} z"}}]'),
    ],
)
def test_a_bracket_in_a_string_does_not_end_a_call(calls: str, text: str) -> None:
    expected = Message(calls=(("f", {"a": "{x}: y {} z"}),))
    assert read(answers_of(calls), "", [text]) == expected
    assert read(answers_of(calls), "", text) == expected
