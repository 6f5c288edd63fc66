"""Names that nobody knows: a warning in the answer and one in the log, or a refusal."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from deployments.api.http.unknown_fields import UnknownFields
from deployments.config.service import UnknownFieldsMode
from deployments.text.chat_rendering import compile_template
from specdec_core.errors import InvalidRequestError
from tests.deployments.http_server import TEXT, completion, expected_text, server, stream

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "HELLO"}],
    "max_tokens": 20,
    "temperature": 0,
}
DEEP: list[tuple[dict[str, Any], list[str]]] = [
    ({"tempreature": 1}, ["tempreature"]),
    ({"foo": {"bar": [1]}, "baz": "x"}, ["foo", "baz"]),
    ({"stream_options": {"include_usage": True, "foo": 1}}, ["stream_options.foo"]),
    ({"stream_options": {"temperature": 1}}, ["stream_options.temperature"]),
    ({"speculative": {"K": 3, "mirostat": 2}}, ["speculative.K", "speculative.mirostat"]),
    ({"resume": {"token_ids": [], "foo": 1}}, ["resume.foo"]),
    ({"response_format": {"type": "text", "foo": 1}}, ["response_format.foo"]),
    ({"foo": 1, "speculative": {"foo": 1}}, ["foo", "speculative.foo"]),
]


def told(names: list[str]) -> list[str]:
    return [f"unknown field {name} is ignored" for name in names]


@pytest.mark.parametrize(("fields", "names"), DEEP)
async def test_an_answer_tells_the_names_that_were_ignored(
    fields: dict[str, Any], names: list[str]
) -> None:
    async with server() as (client, _):
        for path, base in (("/v1/completions", completion()), ("/v1/chat/completions", CHAT)):
            body = (await client.post(path, json=base | fields)).json()
            assert body["warnings"] == told(names)
            (choice,) = body["choices"]
            text = choice.get("text") or choice["message"]["content"]
            assert text == expected_text("HELLO", 20)


async def test_names_inside_of_structured_output_are_told_too() -> None:
    pytest.importorskip("llguidance")
    asked: list[tuple[dict[str, Any], str]] = [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {}, "sctrict": True},
                }
            },
            "response_format.json_schema.sctrict",
        ),
        ({"structured_outputs": {"regex": "a", "regexp": "b"}}, "structured_outputs.regexp"),
    ]
    async with server() as (client, _):
        for fields, name in asked:
            answer = await client.post("/v1/completions", json=completion(**fields))
            assert answer.json()["warnings"] == told([name])


SHOWS_ALL = "{{ messages | tojson }}{{ tools | default([], true) | tojson }}"
USER = {"role": "user", "content": "HELLO"}


def called(call: dict[str, Any], function: dict[str, Any]) -> list[dict[str, Any]]:
    whole = {"id": "1", "function": {"name": "f", "arguments": "{}"} | function} | call
    result = {"role": "tool", "tool_call_id": "1", "content": "A"}
    return [USER, {"role": "assistant", "content": None, "tool_calls": [whole]}, result]


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "strict": True} | function}


CHATS: list[tuple[dict[str, Any], list[str]]] = [
    ({"tools": [tool(foo=1) | {"bar": 2}]}, ["tools.function.foo", "tools.bar"]),
    ({"tools": [tool(), tool(foo=1), tool(foo=2)]}, ["tools.function.foo"]),
    ({"tools": [tool(parameters={"foo": 1})]}, []),
    (
        {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "f", "a": 1}}},
        ["tool_choice.function.a"],
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "A", "foo": 1}]}]},
        ["messages.content.foo"],
    ),
    (
        {"messages": called({"foo": 1}, {"bar": 1})},
        ["messages.tool_calls.function.bar", "messages.tool_calls.foo"],
    ),
    ({"messages": called({"index": 0, "extra_content": {}}, {})}, []),
    ({"messages": [USER | {"cache_control": {"type": "ephemeral"}}]}, []),
]


@pytest.mark.parametrize("mode", UnknownFieldsMode)
async def test_names_inside_of_messages_and_tools_are_told_too(mode: UnknownFieldsMode) -> None:
    pytest.importorskip("llguidance")
    text = replace(TEXT, template=compile_template(SHOWS_ALL), max_model_len=4_096)
    async with server(text=text, unknown_fields=mode) as (client, _):
        for fields, names in CHATS:
            answer = await client.post("/tokenize", json=CHAT | fields)
            if names and mode is UnknownFieldsMode.REFUSE:
                assert answer.status_code == 400
                assert answer.json()["error"]["param"] in names
            else:
                found = answer.json().get("warnings", [])
                assert sorted(found) == sorted(told(names)), answer.text


async def test_the_first_chunk_of_a_stream_tells_them_and_no_other() -> None:
    async with server() as (client, _):
        for path, base in (
            ("/v1/completions", completion()),
            ("/v1/completions", completion(echo=True)),
            ("/v1/completions", completion(n=2)),
            ("/v1/chat/completions", CHAT),
        ):
            chunks = await stream(client, path, base | {"foo": 1})
            assert chunks[0]["warnings"] == told(["foo"])
            assert not any("warnings" in chunk for chunk in chunks[1:])
            first = [c for chunk in chunks for c in chunk["choices"] if c["index"] == 0]
            text = "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in first)
            assert text.endswith(expected_text("HELLO", 20))


async def test_tokenizing_tells_them_and_takes_any_field_of_a_chat() -> None:
    async with server() as (client, _):
        body = CHAT | {"top_p": 0.5, "n_predict": 3, "verbosity": "low", "foo": 1}
        answer = (await client.post("/tokenize", json=body)).json()
        assert (answer["count"], answer["warnings"]) == (5, told(["foo"]))
        answer = (await client.post("/detokenize", json={"tokens": [1], "bar": 1})).json()
        assert answer["warnings"] == told(["bar"])


@pytest.mark.parametrize(("fields", "names"), DEEP)
async def test_a_server_that_refuses_them_names_the_first(
    fields: dict[str, Any], names: list[str]
) -> None:
    async with server(unknown_fields=UnknownFieldsMode.REFUSE) as (client, parts):
        answer = await client.post("/v1/completions", json=completion(**fields))
        error = answer.json()["error"]
        assert answer.status_code == 400
        assert error["message"] == f"unknown field {names[0]}"
        assert (error["param"], error["code"]) == (names[0], "unknown_parameter")
        assert not parts.replicas["t0"].rules_seen


def test_the_log_has_each_name_once(caplog: pytest.LogCaptureFixture) -> None:
    unknown = UnknownFields()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert unknown.warnings(["a", "b"]) == told(["a", "b"])
    assert [record.args for record in caplog.records] == [("a",), ("b",)]


def test_what_a_caller_makes_the_server_keep_and_say_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = UnknownFields()
    with caplog.at_level(logging.WARNING):
        for start in range(0, 5000, 10):
            assert len(unknown.warnings(f"name {i}" for i in range(start, start + 10))) == 10
        assert len(unknown.warnings(f"name {i}" for i in range(1000))) == 16
        (warning,) = unknown.warnings(["x\n" * 50_000])
    assert len(caplog.records) == 1000
    assert len(warning) < 200
    assert all("\n" not in record.getMessage() for record in caplog.records)
    refusing = UnknownFields(UnknownFieldsMode.REFUSE)
    with pytest.raises(InvalidRequestError) as refused:
        refusing.warnings(["x" * 50_000])
    assert len(str(refused.value)) < 200
    assert len(refused.value.param) < 200
