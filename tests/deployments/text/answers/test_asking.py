"""Grammars of whole answers: which parts they have."""

from __future__ import annotations

import pytest

from deployments.text.answers.asking import CallsAsked, asked_grammar
from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.mark_text import MarkTokens
from deployments.text.answers.reading import Begun
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.structured_output import ANY_OBJECT, choice, lark, regex
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("find", "add")]
THINKING = AnswerFormat(reasoning=REASONING_FORMATS["qwen3"], calls=CALL_FORMATS["hermes"])
CALLING = AnswerFormat(calls=CALL_FORMATS["hermes"])
TOKENS = MarkTokens({"<think>": 7, "</think>": 8, "<tool_call>": 9, "<end>": 2}, {2})


def asked(
    answer_format: AnswerFormat,
    begun: Begun = Begun.NOTHING,
    calls: CallsAsked | None = None,
    content: GrammarSpec | None = None,
) -> GrammarSpec | None:
    return asked_grammar(answer_format, begun, calls, content, TOKENS)


@pytest.mark.parametrize("content", [ANY_OBJECT, regex("a+"), choice(["a"]), lark('start: "a"')])
def test_content_without_reasoning_and_tools_keeps_its_grammar(content: GrammarSpec) -> None:
    assert asked(CALLING, content=content) is content
    assert asked(THINKING, Begun.CONTENT, content=content) is content


def test_an_answer_that_nothing_constrains_has_no_grammar() -> None:
    assert asked(THINKING) is None
    assert asked(THINKING, calls=CallsAsked(TOOLS)) is None


def test_reasoning_may_come_first() -> None:
    spec = asked(THINKING, content=ANY_OBJECT)
    assert spec is not None
    start, *_ = spec.source.splitlines()
    layout = r'("\n\n" | "\n")?'
    assert start == rf'start: ({layout} <[7]> "\n" REASONING <[8]> "\n\n")? (content)'


def test_reasoning_that_the_prompt_opens_ends_before_the_answer() -> None:
    spec = asked(THINKING, Begun.REASONING, content=ANY_OBJECT)
    assert spec is not None
    start, *_ = spec.source.splitlines()
    assert start == r'start: REASONING <[8]> "\n\n" (content)'


def test_a_name_that_no_tool_has_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="there is no tool 'rain'") as refused:
        asked(THINKING, calls=CallsAsked(TOOLS, is_required=True, name="rain"))
    assert refused.value.param == "tool_choice"


def test_calls_in_an_unknown_format_are_refused_with_the_flag() -> None:
    with pytest.raises(InvalidRequestError, match="Start the server with --tool-call-parser"):
        asked(AnswerFormat(), calls=CallsAsked(TOOLS, is_required=True))


def test_definitions_that_all_lead_to_each_other_are_refused_soon() -> None:
    names = [f"D{i}" for i in range(100)]
    union = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names] + [{"type": "string"}]}
    parameters = {
        "type": "object",
        "properties": {name: {"$ref": f"#/$defs/{name}"} for name in names},
        "$defs": dict.fromkeys(names, union),
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(InvalidRequestError, match=r"more schemas and values than the limit") as no:
        asked(
            AnswerFormat(calls=CALL_FORMATS["qwen3_coder"]),
            calls=CallsAsked(tools, is_required=True),
        )
    assert no.value.param == "tools"
