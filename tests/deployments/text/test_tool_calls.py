"""Tool calls: wherever rounds cut the text, the same content and the same calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config import SpecMetrics
from deployments.http.api import build_http_app
from deployments.http.logprob_json import Echo
from deployments.http.requests import ChatBody
from deployments.http.response_choice import Choice
from deployments.http.responses import CHAT, Response
from deployments.ingress.access import Access
from deployments.ingress.ask import Ask, Generation
from deployments.ingress.generation import GenerationService
from deployments.ingress.output import Piece
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
from specdec_core.leases import Role
from specdec_core.request import FinishReason
from tests.deployments.cell import cell
from tests.deployments.http_server import SPECULATION, TEXT, run

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


def response_to(generation: Generation, *, allows_many_calls: bool = True) -> Response:
    return Response(
        shape=CHAT,
        choices=[
            Choice(0, generation, Echo(), ToolCallParser(), allows_many_calls=allows_many_calls)
        ],
        n=1,
        model="fake",
        system_fingerprint="",
        num_spec_tokens=0,
        token_bytes=TEXT.token_bytes,
        metrics=SpecMetrics.NONE,
        return_token_ids=False,
    )


def piece(text: str, reason: FinishReason | None = None) -> Piece:
    return Piece(index=0, token_ids=(1,), text=text, text_offsets=(0,), finish_reason=reason)


@contextlib.asynccontextmanager
async def tool_server() -> AsyncIterator[tuple[httpx.AsyncClient, GenerationService, Any]]:
    async with cell(None) as parts:
        parts.start_replica("t0", Role.TARGET)
        pool = await parts.client()
        shows = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
        template = compile_template(shows + "{{ messages[0].content }}")
        text = replace(TEXT, template=template)
        service = GenerationService(text, pool, model_name="fake", speculation=SPECULATION)
        while not service.is_ready:
            await asyncio.sleep(0.005)
        app = build_http_app(
            service, Access({}, "127.0.0.1"), max_body_bytes=10_000, metrics=SpecMetrics.NONE
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, service, parts


def test_tools_reach_the_prompt_and_demands_the_replicas() -> None:
    pytest.importorskip("llguidance")

    async def scenario() -> None:
        async with tool_server() as (client, _, parts):
            chat = {"messages": [{"role": "user", "content": "HI"}], "max_tokens": 3}
            chat |= {"tools": [TOOL], "return_token_ids": True}
            prompts = []
            for choice in (
                "auto",
                "none",
                "required",
                {"type": "function", "function": {"name": "weather"}},
            ):
                body = chat | {"tool_choice": choice}
                answer = await client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                prompts.append(answer.json()["choices"][0]["prompt_token_ids"])
            shown, plain = list(TEXT.encode("weatherHI")), list(TEXT.encode("HI"))
            assert prompts == [shown, plain, shown, shown]
            seen = [rules.params.grammar for rules in parts.replicas["t0"].rules_seen]
            demanded = forced_call([TOOL], None)
            assert seen == [None, None, demanded, demanded]
            for wrong, message in (
                ({"response_format": {"type": "json_object"}}, "exclude each other"),
                ({"tool_choice": "perhaps"}, "none, auto, required, or name a function"),
                ({"tool_choice": {"function": {"name": "rain"}}}, "there is no tool 'rain'"),
            ):
                body = chat | {"tool_choice": "required"} | wrong
                answer = await client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 400, answer.text
                assert message in answer.json()["error"]["message"]

    run(scenario)


def test_calls_have_openais_shape_whole_and_streamed() -> None:
    async def scenario() -> None:
        async with tool_server() as (_, service, _):
            generation = service.prepare((5,), Ask(sampling={"max_tokens": 9}))
            text = f"Let me see.\n{CALL}{OTHER}"
            body = response_to(generation).whole([piece(text, FinishReason.STOP)])
            (choice,) = body["choices"]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["content"] == "Let me see."
            functions = [call["function"] for call in choice["message"]["tool_calls"]]
            assert json.loads(functions[0]["arguments"]) == {"city": "Rome"}
            assert [function["name"] for function in functions] == ["weather", "time"]

            telling = response_to(generation)
            parts = [text[i : i + 7] for i in range(0, len(text), 7)]
            chunks = [telling.chunk(0, piece(part)) for part in parts[:-1]]
            chunks.append(telling.chunk(0, piece(parts[-1], FinishReason.STOP)))
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            assert "".join(delta.get("content", "") for delta in deltas) == "Let me see."
            calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
            assert [call["index"] for call in calls] == [0, 1]
            assert [call["function"] for call in calls] == functions
            assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"

            only = response_to(generation).whole([piece(CALL, FinishReason.STOP)])
            assert only["choices"][0]["message"]["content"] is None

    run(scenario)


def test_parallel_calls_can_be_declined_whole_and_streamed() -> None:
    """As in vLLM, the first call is told and the others are left out."""
    text = f"Let me see.\n{CALL}{OTHER}{CALL}"

    async def scenario() -> None:
        async with tool_server() as (_, service, _):
            generation = service.prepare((5,), Ask(sampling={"max_tokens": 9}))
            body = response_to(generation, allows_many_calls=False).whole(
                [piece(text, FinishReason.STOP)]
            )
            (choice,) = body["choices"]
            (call,) = choice["message"]["tool_calls"]
            assert call["function"]["name"] == "weather"
            assert choice["message"]["content"] == "Let me see."
            assert choice["finish_reason"] == "tool_calls"
            for size in (1, 7, 40, len(text)):
                telling = response_to(generation, allows_many_calls=False)
                parts = [text[i : i + size] for i in range(0, len(text), size)]
                deltas = [telling.chunk(0, piece(part))["choices"][0]["delta"] for part in parts]
                last = telling.chunk(0, piece("", FinishReason.STOP))["choices"][0]
                calls = [c for delta in deltas for c in delta.get("tool_calls", [])]
                assert [c["function"]["name"] for c in calls] == ["weather"], size
                assert last["finish_reason"] == "tool_calls"

    run(scenario)


def test_the_body_says_whether_calls_may_be_parallel() -> None:
    messages = [{"role": "user", "content": "HI"}]
    for value, allows in ((None, True), (True, True), (False, False)):
        assert ChatBody(messages=messages, parallel_tool_calls=value).allows_many_calls is allows
