"""Every field of OpenAI's request reference, as null and with the value that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import completion_create_params as completions
from openai.types.chat import chat_completion_stream_options_param as streams
from openai.types.chat import completion_create_params as chats

from tests.deployments.http_server import expected_text, server, stream

CHAT_FIELDS = sorted(chats.CompletionCreateParamsBase.__annotations__)
TEXT_FIELDS = sorted(completions.CompletionCreateParamsBase.__annotations__)
STREAM_FIELDS = sorted(streams.ChatCompletionStreamOptionsParam.__annotations__)
REQUIRED = {"messages", "model", "prompt"}

NEUTRAL: dict[str, list[Any]] = {
    "best_of": [1],
    "echo": [False],
    "frequency_penalty": [0, 0.0],
    "function_call": ["none", "auto"],
    "functions": [[]],
    "logit_bias": [{}],
    "logprobs": [False],
    "max_completion_tokens": [20],
    "max_tokens": [20],
    "metadata": [{}, {"a": "b"}],
    "modalities": [["text"]],
    "n": [1],
    "parallel_tool_calls": [True, False],
    "prediction": [{"type": "content", "content": "HELLO"}],
    "presence_penalty": [0],
    "prompt_cache_key": ["", "a"],
    "prompt_cache_options": [{}],
    "prompt_cache_retention": ["in_memory", "24h"],
    "reasoning_effort": ["none"],
    "response_format": [{"type": "text"}],
    "safety_identifier": ["a"],
    "seed": [5],
    "service_tier": ["auto", "default", "flex", "priority"],
    "stop": [[]],
    "store": [True, False],
    "stream_options": [{}, {"include_usage": False, "include_obfuscation": True}],
    "suffix": [""],
    "temperature": [0],
    "tool_choice": ["none", "auto"],
    "tools": [[]],
    "top_logprobs": [0],
    "top_p": [1],
    "user": ["a"],
    "verbosity": ["medium"],
}
HAS_NO_NEUTRAL_VALUE = {"audio", "moderation", "web_search_options"}
NOT_NEUTRAL: list[tuple[str, dict[str, Any]]] = [
    ("audio", {"audio": {"voice": "alloy", "format": "wav"}}),
    ("function_call", {"function_call": {"name": "f"}}),
    ("functions", {"functions": [{"name": "f"}]}),
    ("modalities", {"modalities": ["text", "audio"]}),
    ("moderation", {"moderation": {"model": "omni"}}),
    ("verbosity", {"verbosity": "low"}),
    ("web_search_options", {"web_search_options": {}}),
]
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "HELLO"}], "model": "fake"}
TEXT: dict[str, Any] = {"prompt": "HELLO", "model": "fake"}
COMMON: dict[str, Any] = {"max_tokens": 20, "temperature": 0}


def test_the_tables_cover_the_reference() -> None:
    fields = {*CHAT_FIELDS, *TEXT_FIELDS} - REQUIRED
    assert fields == NEUTRAL.keys() | HAS_NO_NEUTRAL_VALUE


@pytest.mark.parametrize(
    ("path", "base", "fields"),
    [
        ("/v1/chat/completions", CHAT | COMMON, CHAT_FIELDS),
        ("/v1/completions", TEXT | COMMON, TEXT_FIELDS),
    ],
)
async def test_null_and_neutral_values_pass_and_change_nothing(
    path: str, base: dict[str, Any], fields: list[str]
) -> None:
    async with server() as (client, _):
        for name in fields:
            values = [None, *NEUTRAL.get(name, [])]
            if name in REQUIRED:
                values = [base[name]]
            if path == "/v1/completions" and name == "logprobs":
                values = [None]
            for value in values:
                body = base | {name: value}
                if value is None and name == "max_tokens":
                    body["max_completion_tokens"] = 20
                if value is None and name == "temperature":
                    body["top_k"] = 1
                answer = await client.post(path, json=body)
                assert answer.status_code == 200, (name, value, answer.text)
                (choice,) = answer.json()["choices"]
                text = choice.get("text") or choice["message"]["content"]
                assert text == expected_text("HELLO", 20), (name, value)
                assert "warnings" not in answer.json(), (name, value)


async def test_all_fields_at_once_pass_as_null_and_neutral_whole_and_streamed() -> None:
    async with server() as (client, _):
        for path, base, fields in (
            ("/v1/chat/completions", CHAT, CHAT_FIELDS),
            ("/v1/completions", TEXT, TEXT_FIELDS),
        ):
            names = [name for name in fields if name not in REQUIRED]
            for body in (
                dict.fromkeys(names) | base,
                {n: NEUTRAL[n][0] for n in names if n in NEUTRAL} | base,
            ):
                if path == "/v1/completions":
                    body["logprobs"] = None
                body |= COMMON
                assert (await client.post(path, json=body)).status_code == 200
                chunks = await stream(client, path, body)
                assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_null_is_left_out_in_nested_objects() -> None:
    nested: list[dict[str, Any]] = [
        {"stream_options": dict.fromkeys([*STREAM_FIELDS, "continuous_usage_stats"])},
        {"speculative": {"enabled": None, "num_speculative_tokens": None, "method": None}},
        {"speculative": {}},
        {"resume": {"token_ids": [], "seed": None, "system_fingerprint": None}},
        {"priority": None, "cache_salt": None, "request_id": None, "truncate_prompt_tokens": None},
        {"foo": None, "n_predict": None, "response_format": None, "tools": None},
        {"add_special_tokens": None, "skip_special_tokens": None, "return_token_ids": None},
    ]
    async with server() as (client, _):
        for fields in nested:
            for path, base in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
                answer = await client.post(path, json=base | COMMON | fields)
                assert answer.status_code == 200, (fields, answer.text)
                assert "warnings" not in answer.json()


async def test_a_value_that_would_change_the_answer_is_refused_by_name() -> None:
    async with server() as (client, parts):
        for name, fields in NOT_NEUTRAL:
            answer = await client.post("/v1/chat/completions", json=CHAT | COMMON | fields)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, name), (fields, error)
            assert error["code"] in ("unsupported_parameter", "unsupported_value")
            assert error["message"].startswith(f"{name}=")
        assert not parts.replicas["t0"].rules_seen
