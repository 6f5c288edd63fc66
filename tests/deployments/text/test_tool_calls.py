"""Tools of a request are checked, shown to the model, and demanded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from deployments.text.answers.asking import CallsAsked, asked_grammar
from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.mark_text import MarkTokens
from deployments.text.answers.reading import Answers, Begun
from deployments.text.chat_messages import checked_tools
from deployments.text.chat_rendering import ChatOptions, compile_template
from deployments.text.grammar_library import try_grammar
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec
from tests.deployments.http_server import TEXT

HERMES = Answers(AnswerFormat(calls=CALL_FORMATS["hermes"]))
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Paris"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def test_the_template_is_shown_the_tools_unless_they_are_declined() -> None:
    template = compile_template("{% if tools %}{{ tools[0].function.name }}: {% endif %}hi")
    text = replace(TEXT, template=template)
    assert text.render_chat([], ChatOptions(tools=[TOOL])) == "weather: hi"
    assert text.render_chat([], ChatOptions()) == "hi"
    with pytest.raises(InvalidRequestError, match="knows none"):
        TEXT.render_chat([], ChatOptions(tools=[TOOL]))


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def demanded(tools: Sequence[dict[str, Any]], name: str | None = None) -> GrammarSpec:
    asked = CallsAsked(tools, is_required=True, name=name)
    spec = asked_grammar(HERMES.format, Begun.NOTHING, asked, None, MarkTokens())
    assert spec is not None
    return spec


COLOURS = {"enum": ["red"]}
PYDANTIC = {
    "$defs": {"Colour": COLOURS, "Node": {"$ref": "#/$defs/Other"}, "Other": {"type": "null"}},
    "properties": {"colour": {"$ref": "#/$defs/Colour"}, "node": {"$ref": "#/$defs/Node"}},
    "required": ["colour", "node"],
    "additionalProperties": False,
}
ZOD = {
    "definitions": {"Colour": {"enum": ["blue"]}},
    "type": "object",
    "properties": {"colour": {"$ref": "#/definitions/Colour"}, "inner": {"$ref": "#"}},
    "required": ["colour"],
    "additionalProperties": False,
}
TOOLS = [
    tool("pydantic", PYDANTIC),
    tool("zod", ZOD),
    tool('no "thing"'),
    {"type": "function", "function": {"name": "left out"}},
    tool("any", {}),
]


@pytest.mark.parametrize(
    ("name", "arguments", "fits"),
    [
        ("pydantic", '{"colour": "red", "node": null}', True),
        ("pydantic", '{"colour": "blue", "node": null}', False),
        ("zod", '{"colour": "blue", "inner": {"colour": "blue"}}', True),
        ("zod", '{"colour": "blue", "inner": {"colour": "red"}}', False),
        ('no "thing"', "{}", True),
        ('no "thing"', '{"a": 1}', False),
        ("left out", "{}", True),
        ("left out", '{"a": 1}', False),
        ("any", '{"a": [1]}', True),
        ("any", "[1]", False),
        ("other", "{}", False),
    ],
)
def test_a_demanded_call_fits_its_own_tool(name: str, arguments: str, fits: bool) -> None:
    walks = pytest.importorskip("tests.deployments.text.walks")
    written = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    call = f"<tool_call>\n{written}\n</tool_call>"
    tools = checked_tools(TOOLS)
    named = [name] if name != "other" else []
    for choice in (None, *named):
        matcher = walks.matcher_of(demanded(tools, choice))
        taken = matcher.try_consume_tokens(list(call.encode()))
        assert (taken == len(call.encode()) and matcher.is_accepting()) == fits
    if fits:
        (found,) = HERMES.reader(tools=tools).add(call).calls
        assert (found.name, found.arguments) == (name, arguments)


def test_a_demand_that_cannot_be_a_grammar_is_refused() -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(InvalidRequestError, match="there is no tool 'rain'") as refused:
        demanded([TOOL], "rain")
    assert refused.value.param == "tool_choice"
    for parameters, reason in (
        ({"not": {"type": "null"}}, "the parameters of bad: JSON schema: #/not is not supported"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "which leads to nothing"),
    ):
        with pytest.raises(InvalidRequestError, match=reason) as refused:
            try_grammar(demanded([TOOL, tool("bad", parameters)]))
        assert refused.value.param == "tools"


def test_tools_are_checked() -> None:
    deep: Any = {}
    for _ in range(120):
        deep = {"items": deep}
    for wrong, param in (
        ({"type": "function"}, "tools.0"),
        (tool("a", [1]), "tools.0.function.parameters"),
        (tool("a", deep), "tools.0"),
        (tool("a\ud800"), "tools.0"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            checked_tools([wrong])
        assert refused.value.param == param
    assert checked_tools([tool("a")]) == [{"type": "function", "function": {"name": "a"}}]
