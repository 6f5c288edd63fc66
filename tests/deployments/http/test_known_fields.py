"""Fields of vLLM, llama.cpp, SGLang, TGI and Ollama: enforced, refused by name, or harmless."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.api.http.known_fields import DECODING, NAMES, PASSES, check_neutral
from deployments.api.http.schemas import ChatBody, CompletionBody
from deployments.text.structured_output import from_structured_outputs
from specdec_core.errors import InvalidRequestError
from tests.deployments.http_server import completion, server

HARMLESS: dict[str, Any] = {
    # vLLM's own defaults, as its documentation shows them.
    "best_of": 1,
    "use_beam_search": False,
    "length_penalty": 1.0,
    "stop_token_ids": [],
    "include_stop_str_in_output": False,
    "ignore_eos": False,
    "min_tokens": 0,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "truncate_prompt_tokens": None,
    "prompt_logprobs": None,
    "echo": False,
    "add_special_tokens": True,
    "guided_json": None,
    "guided_decoding_backend": "xgrammar",
    "guided_whitespace_pattern": None,
    "documents": None,
    "mm_processor_kwargs": {"a": 1},
    "priority": 0,
    "return_tokens_as_token_ids": False,
    "return_token_ids": False,
    "kv_transfer_params": None,
    "vllm_xargs": {},
    "include_reasoning": True,
    "thinking_token_budget": None,
    "logits_processors": [],
    "repetition_penalty": 1.0,
    "min_p": 0.0,
    "top_k": -1,
    # llama.cpp's defaults.
    "cache_prompt": True,
    "id_slot": -1,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_sequence_breakers": ["\n"],
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "top_n_sigma": -1.0,
    "dynatemp_range": 0.0,
    "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "n_keep": 0,
    "n_probs": 0,
    "min_keep": 0,
    "t_max_predict_ms": 0,
    "timings_per_token": False,
    "post_sampling_probs": False,
    "lora": [],
    "grammar": "",
    # SGLang's, TGI's and Ollama's.
    "ebnf": None,
    "no_stop_trim": False,
    "separate_reasoning": True,
    "stream_reasoning": True,
    "min_new_tokens": 0,
    "do_sample": True,
    "watermark": False,
    "keep_alive": "5m",
    "options": {},
    "format": "",
}
REFUSED: list[tuple[str, Any, str]] = [
    ("use_beam_search", True, "only false"),
    ("length_penalty", 2.0, "only 1"),
    ("guided_whitespace_pattern", " ", "only null"),
    ("documents", [{"text": "a"}], "documents="),
    ("return_tokens_as_token_ids", True, "use return_token_ids"),
    ("kv_transfer_params", {"a": 1}, "kv_transfer_params="),
    ("vllm_xargs", {"a": 1}, "vllm_xargs="),
    ("thinking_token_budget", 5, "thinking_token_budget=5"),
    ("include_reasoning", False, "only true"),
    ("logits_processors", ["x"], "logits_processors="),
    ("n_predict", 5, "use max_tokens"),
    ("max_new_tokens", 5, "use max_tokens"),
    ("mirostat", 2, "only 0"),
    ("typical_p", 0.5, "only 1"),
    ("dry_multiplier", 0.8, "only 0"),
    ("xtc_probability", 0.5, "only 0"),
    ("top_n_sigma", 1.0, "only -1 or 0"),
    ("repeat_penalty", 1.1, "use repetition_penalty"),
    ("grammar", "root ::= 'a'", "structured_outputs.grammar"),
    ("ebnf", "root ::= 'a'", "structured_outputs.grammar"),
    ("samplers", ["top_k"], "samplers="),
    ("do_sample", False, "use temperature=0"),
    ("stop_sequences", ["a"], "use stop"),
    ("options", {"temperature": 0}, "at the top level"),
    ("parameters", {"temperature": 0}, "at the top level"),
    ("extra_body", {"top_k": 1}, "at the top level"),
    ("format", "json", "use response_format"),
    ("enable_thinking", False, "use chat_template_kwargs"),
    ("messages", [{"role": "user", "content": "a"}], "/v1/chat/completions takes it"),
    ("tools", [{}], "/v1/chat/completions takes it"),
    ("top_logprobs", 2, "logprobs is the number"),
    ("chat_template_kwargs", {"a": 1}, "/v1/chat/completions takes it"),
]


async def test_harmless_values_pass_without_a_warning_alone_and_together() -> None:
    async with server() as (client, _):
        plain = (await client.post("/v1/completions", json=completion())).json()
        singles = [{name: value} for name, value in HARMLESS.items()]
        for fields in (*singles, HARMLESS, dict.fromkeys(NAMES)):
            body = completion(seed=plain["seed"]) | fields
            body |= {"prompt": "HELLO"}
            answer = await client.post("/v1/completions", json=body)
            assert answer.status_code == 200, (fields, answer.text)
            assert answer.json()["choices"] == plain["choices"], fields
            assert "warnings" not in answer.json()


async def test_what_would_change_the_answer_is_refused_by_name() -> None:
    async with server() as (client, parts):
        for name, value, message in REFUSED:
            answer = await client.post("/v1/completions", json=completion(**{name: value}))
            assert answer.status_code == 400, (name, answer.text)
            error = answer.json()["error"]
            assert error["param"] == name
            assert message in error["message"]
        assert not parts.replicas["t0"].rules_seen


def test_every_known_name_passes_as_null_and_refuses_an_odd_value() -> None:
    for name in NAMES:
        check_neutral(name, None)
        if name in PASSES:
            check_neutral(name, ["odd"])
        else:
            with pytest.raises(InvalidRequestError, match=f"^{name}=") as refused:
                check_neutral(name, ["odd"])
            assert refused.value.param == name
    assert not PASSES & DECODING.keys()


def test_every_field_of_one_route_is_known_to_the_other() -> None:
    chat, text = set(ChatBody.model_fields), set(CompletionBody.model_fields)
    assert chat - text <= NAMES
    assert text - chat <= NAMES


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("guided_json", SCHEMA, {"json": SCHEMA}),
        ("guided_json", '{"type": "null"}', {"json": {"type": "null"}}),
        ("guided_regex", "a+", {"regex": "a+"}),
        ("guided_choice", ["a", "b"], {"choice": ["a", "b"]}),
        ("guided_grammar", 'start: "a"', {"grammar": 'start: "a"'}),
        ("json_schema", SCHEMA, {"json": SCHEMA}),
        ("regex", "a+", {"regex": "a+"}),
    ],
)
async def test_older_names_of_structured_output_are_enforced(
    name: str, value: Any, same: dict[str, Any]
) -> None:
    pytest.importorskip("llguidance")
    async with server() as (client, parts):
        for path, base in (
            ("/v1/completions", completion()),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "A"}]}),
        ):
            answer = await client.post(path, json=base | {"max_tokens": 3, name: value})
            assert answer.status_code == 200, answer.text
        seen = {rules.params.grammar for rules in parts.replicas["t0"].rules_seen}
        assert seen == {from_structured_outputs(same)}


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"guided_regex": 5}, "guided_regex must be a string", "guided_regex"),
        ({"guided_choice": []}, "guided_choice is empty", "guided_choice"),
        ({"json_schema": "{"}, "json_schema is not JSON", "json_schema"),
        (
            {"guided_regex": "a", "guided_choice": ["a"]},
            "guided_regex and guided_choice exclude each other",
            "guided_regex",
        ),
        (
            {"response_format": {"type": "json_object"}, "regex": "a"},
            "response_format and regex exclude each other",
            "response_format",
        ),
    ],
)
async def test_wrong_structured_output_names_the_callers_field(
    fields: dict[str, Any], message: str, param: str
) -> None:
    async with server() as (client, _):
        answer = await client.post("/v1/completions", json=completion(**fields))
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), error
        assert message in error["message"]


async def test_max_completion_tokens_holds_in_both_routes() -> None:
    async with server() as (client, _):
        body = completion(max_completion_tokens=3)
        answer = (await client.post("/v1/completions", json=body)).json()
        assert answer["usage"]["completion_tokens"] == 3
