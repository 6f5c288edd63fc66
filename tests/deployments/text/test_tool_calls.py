"""Tool calls: wherever rounds cut the text, the same content and the same calls."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.text.chat_template import ChatOptions, compile_template
from deployments.text.grammar_library import try_grammar
from deployments.text.tool_calls import (
    CLOSING,
    OPENING,
    ToolCallParser,
    checked_tools,
    forced_call,
)
from specdec_core.errors import InvalidRequestError
from tests.deployments.http_server import TEXT

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "time"}</tool_call>'
WEATHER = ("weather", '{"city": "Rome"}')
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
ANSWERS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("", "", []),
    ("Hello <b> you\n", "Hello <b> you\n", []),
    (CALL, "", [WEATHER]),
    (f"{CALL}\n{OTHER}\n", "", [WEATHER, ("time", "{}")]),
    (f"Let me see. \n\n{CALL}", "Let me see.", [WEATHER]),
    (f"{CALL}\n\nThere.", "There.", [WEATHER]),
    ("<tool_call>{broken}</tool_call> x", "<tool_call>{broken}</tool_call> x", []),
    ("<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", []),
    ('<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg', []),
    ("a <tool_cal", "a <tool_cal", []),
]


@pytest.mark.parametrize(("text", "content", "calls"), ANSWERS)
@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_calls_are_told_from_content_wherever_the_text_is_cut(
    text: str, content: str, calls: list[tuple[str, str]], cuts: list[int]
) -> None:
    parser = ToolCallParser()
    bounds = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    found = [parser.add(text[a:b]) for a, b in pairwise(bounds)]
    found.append(parser.flush())
    assert "".join(one.content for one in found) == content
    told = [call for one in found for call in one.calls]
    assert [(call.name, call.arguments) for call in told] == calls
    assert len({call.call_id for call in told}) == len(told)


def test_content_is_not_held_back_longer_than_a_tag_may_begin() -> None:
    parser = ToolCallParser()
    assert parser.add("Hello").content == "Hello"
    assert parser.add(" <too").content == ""
    assert parser.add("th>").content == " <tooth>"


def test_the_template_is_shown_the_tools_unless_they_are_declined() -> None:
    template = compile_template("{% if tools %}{{ tools[0].function.name }}: {% endif %}hi")
    text = replace(TEXT, template=template)
    assert text.render_chat([], ChatOptions(tools=[TOOL])) == "weather: hi"
    assert text.render_chat([], ChatOptions()) == "hi"
    with pytest.raises(InvalidRequestError, match="knows none"):
        TEXT.render_chat([], ChatOptions(tools=[TOOL]))


AS_WRITTEN = [
    '{"n": 1e999, "m": -0, "x": 1.10, "y": 12345678901234567890.0}',
    '{"big": ' + "9" * 5_000 + "}",
    '{"a": 1, "a": 2}',
    '{ "a":[ ],\n"b" : "\\u00e9\\ud83d\\ude42" }',
    "{}",
    '{"a": "}, \\"arguments\\": {"}',
]


@pytest.mark.parametrize("arguments", AS_WRITTEN)
def test_arguments_stay_as_the_model_wrote_them(arguments: str) -> None:
    for body in (
        f'{{"name": "f", "arguments": {arguments}}}',
        f' {{ "arguments" :{arguments} , "id": [1e999, {{}}], "name":"f" }} ',
        f'{{"name": "g", "arguments": 3, "name": "f", "arguments": {arguments}}}',
    ):
        found = ToolCallParser().add(f"{OPENING}{body}{CLOSING}")
        assert found.content == ""
        assert [(call.name, call.arguments) for call in found.calls] == [("f", arguments)]


@pytest.mark.parametrize(
    "body",
    [
        "[" * 90_000,
        '{"name": "f", "arguments": ' + '{"a":' * 90_000,
        '{"name": "f", "arguments": {"a": ' + "[" * 120 + "]" * 120 + "}}",
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": 3, "arguments": {}}',
        '{"name": "f"} {}',
        '"name"',
        "",
    ],
)
def test_what_is_no_call_is_content(body: str) -> None:
    parser = ToolCallParser()
    text = f"{OPENING}{body}{CLOSING}"
    found = parser.add(text)
    assert found.content + parser.flush().content == text
    assert not found.calls


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


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
    call = f'{OPENING}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{CLOSING}'
    tools = checked_tools(TOOLS)
    named = [name] if name != "other" else []
    for choice in (None, *named):
        matcher = walks.matcher_of(forced_call(tools, choice))
        taken = matcher.try_consume_tokens(list(call.encode()))
        assert (taken == len(call.encode()) and matcher.is_accepting()) == fits
    if fits:
        (found,) = ToolCallParser().add(call).calls
        assert (found.name, found.arguments) == (name, arguments)


def test_a_demand_that_cannot_be_a_grammar_is_refused() -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(InvalidRequestError, match="there is no tool 'rain'") as refused:
        forced_call([TOOL], "rain")
    assert refused.value.param == "tool_choice"
    for parameters, reason in (
        ({"not": {"type": "null"}}, "%json number 2: JSON schema: #/not is not supported"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "which leads to nothing"),
    ):
        with pytest.raises(InvalidRequestError, match=reason) as refused:
            try_grammar(forced_call([TOOL, tool("bad", parameters)], None))
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
