"""Sampling fields and log-probabilities over the OpenAI routes."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from specdec_core.sampling_params import SamplingParams
from tests.deployments.fake_replica import continuation, expected_logprobs
from tests.deployments.http_server import TEXT, completion, server, stream

PROMPT = TEXT.encode("HELLO")
CHAT = {"messages": [{"role": "user", "content": "HELLO"}], "max_tokens": 20, "temperature": 0}
FIELDS: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": -0.25,
    "repetition_penalty": 1.5,
    "logit_bias": {"7": -100, "3": 2.5},
    "min_tokens": 3,
    "allowed_token_ids": [3, 4, 5],
    "bad_words": ["AB", "C"],
    "seed": 11,
}
PARAMS: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": -0.25,
    "repetition_penalty": 1.5,
    "logit_bias": ((3, 2.5), (7, -100.0)),
    "min_tokens": 3,
    "allowed_token_ids": (3, 4, 5),
    "bad_words": ((17, 18), (19,)),
    "seed": 11,
    "temperature": 0.0,
    "max_tokens": 20,
}
NEUTRAL: dict[str, Any] = {
    "presence_penalty": 0,
    "frequency_penalty": None,
    "repetition_penalty": 1,
    "logit_bias": {},
    "min_tokens": 0,
    "allowed_token_ids": None,
    "bad_words": [],
    "ignore_eos": None,
    "logprobs": None,
    "seed": 11,
}


@pytest.mark.parametrize(
    ("path", "body", "params"),
    [
        ("completions", completion(**FIELDS, logprobs=4), PARAMS | {"num_logprobs": 4}),
        ("completions", completion(**FIELDS, logprobs=0), PARAMS | {"num_logprobs": 0}),
        ("completions", completion(**NEUTRAL), {"temperature": 0, "max_tokens": 20, "seed": 11}),
        (
            "chat/completions",
            CHAT | FIELDS | {"logprobs": True, "top_logprobs": 5},
            PARAMS | {"num_logprobs": 5},
        ),
        ("chat/completions", CHAT | FIELDS | {"logprobs": True}, PARAMS | {"num_logprobs": 0}),
        ("chat/completions", CHAT | FIELDS | {"logprobs": False, "top_logprobs": 0}, PARAMS),
    ],
)
async def test_every_field_reaches_the_replicas(
    path: str, body: dict[str, Any], params: dict[str, Any]
) -> None:
    async with server() as (client, parts):
        answer = await client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 200, answer.text
        (rules,) = parts.replicas["t0"].rules_seen
        assert rules.params == SamplingParams(**params)


REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    (completion(presence_penalty=2.5), 400, "presence_penalty must be in -2..2, got 2.5"),
    (completion(frequency_penalty=-3), 400, "frequency_penalty must be in -2..2, got -3"),
    (completion(repetition_penalty=0), 400, "repetition_penalty must be in 0.01..100, got 0"),
    (completion(presence_penalty="1"), 400, "presence_penalty"),
    (completion(logit_bias={"50": 1}), 400, "logit_bias: token id 50 is not in 0..49"),
    (completion(logit_bias={"A": 1}), 400, "logit_bias: 'A' is not a token id"),
    (completion(logit_bias={"3": 101}), 400, "-100.0..100.0, got 3: 101"),
    (completion(logit_bias={"3": "much"}), 400, "logit_bias.3"),
    (completion(logit_bias=[3]), 400, "logit_bias"),
    (completion(min_tokens=21), 400, "min_tokens must be in 0..max_tokens=20, got 21"),
    (completion(min_tokens=-1), 400, "got -1"),
    (completion(allowed_token_ids=[50]), 400, "allowed_token_ids: token id 50 is not in 0..49"),
    (completion(allowed_token_ids=[]), 400, "allowed_token_ids is empty, so that no token"),
    (completion(allowed_token_ids=["1"]), 400, "allowed_token_ids.0"),
    (
        completion(allowed_token_ids=[3, 4], min_tokens=1, stop_token_ids=[3, 4]),
        400,
        "allowed_token_ids: bad_words and min_tokens ban every one of [3, 4]",
    ),
    (completion(bad_words=[""]), 400, "bad word is empty"),
    (completion(bad_words="A"), 400, "bad_words"),
    (completion(bad_words=["A" * 10_001]), 400, "the limit is 10000"),
    (completion(logprobs=21), 400, "logprobs must be in 0..20, got 21"),
    (completion(logprobs=-1), 400, "logprobs must be in 0..20, got -1"),
    (completion(logprobs=True), 400, "logprobs"),
    (completion(top_logprobs=2), 400, "top_logprobs=2 is not supported here"),
    (completion(prompt_logprobs=21), 400, "prompt_logprobs must be in 0..20, got 21"),
    (completion(prompt_logprobs=1, stream=True), 400, "prompt_logprobs=1 does not support streams"),
    (completion(prompt_logprobs=True), 400, "prompt_logprobs"),
    (completion(max_tokens=0), 400, "max_tokens must be at least 1, got 0"),
    (CHAT | {"logprobs": 5}, 400, "logprobs"),
    (CHAT | {"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs must be in 0..20, got 21"),
    (CHAT | {"logprobs": True, "top_logprobs": -1}, 400, "top_logprobs must be in 0..20, got -1"),
    (CHAT | {"top_logprobs": 2}, 400, "top_logprobs=2 needs logprobs=true"),
]


async def test_bad_values_are_refused_by_name() -> None:
    async with server() as (client, parts):
        for body, status, message in REFUSALS:
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            answer = await client.post(path, json=body)
            assert answer.status_code == status, (body, answer.text)
            error = answer.json()["error"]
            assert message in error["message"], (body, answer.text)
            assert error["type"] == "invalid_request_error"
            assert isinstance(error["code"], str)
        assert not parts.replicas["t0"].rules_seen


def expected_completion(num_tokens: int, count: int) -> dict[str, Any]:
    """The four lists for the fake's plain continuation: one letter a token."""
    ids = continuation(PROMPT, num_tokens)
    entries = expected_logprobs(PROMPT, num_tokens, count)
    told = [(*entry.top, (i, entry.logprob)) for i, entry in zip(ids, entries, strict=True)]
    return {
        "text_offset": list(range(num_tokens)),
        "token_logprobs": [entry.logprob for entry in entries],
        "tokens": [TEXT.decode([i]) for i in ids],
        "top_logprobs": [{TEXT.decode([i]): logprob for i, logprob in pairs} for pairs in told],
    }


@pytest.mark.parametrize("count", [0, 3])
async def test_completions_report_each_token(count: int) -> None:
    async with server() as (client, _):
        body = completion(logprobs=count, return_token_ids=True)
        (choice,) = (await client.post("/v1/completions", json=body)).json()["choices"]
        expected = expected_completion(20, count)
        assert choice["logprobs"] == expected
        chunks = [c["choices"][0] for c in await stream(client, "/v1/completions", body)]
        assert len(chunks) > 1
        for name, values in expected.items():
            assert [x for chunk in chunks for x in chunk["logprobs"][name]] == values
        assert all(len(c["token_ids"]) == len(c["logprobs"]["tokens"]) for c in chunks)


@pytest.mark.parametrize("count", [0, 2])
async def test_chats_report_each_token(count: int) -> None:
    async with server() as (client, _):
        body = CHAT | {"logprobs": True, "top_logprobs": count, "return_token_ids": True}
        (choice,) = (await client.post("/v1/chat/completions", json=body)).json()["choices"]
        assert choice["logprobs"].keys() == {"content", "refusal"}
        content = choice["logprobs"]["content"]
        ids = continuation(PROMPT, 20)
        for place, entry in enumerate(expected_logprobs(PROMPT, 20, count)):
            letter = TEXT.decode([ids[place]])
            assert content[place] == {
                "token": letter,
                "logprob": entry.logprob,
                "bytes": list(letter.encode()),
                "top_logprobs": [
                    {
                        "token": TEXT.decode([i]),
                        "logprob": logprob,
                        "bytes": list(TEXT.decode([i]).encode()),
                    }
                    for i, logprob in entry.top
                ],
            }
        _, *chunks = await stream(client, "/v1/chat/completions", body)
        choices = [chunk["choices"][0] for chunk in chunks]
        assert [x for c in choices for x in c["logprobs"]["content"]] == content
        assert all(len(c["token_ids"]) == len(c["logprobs"]["content"]) for c in choices)


async def test_a_stop_string_cuts_log_probabilities_where_it_cuts_the_ids() -> None:
    async with server() as (client, _):
        full = TEXT.decode(continuation(PROMPT, 40))
        stop = full[7:10]
        end = full.index(stop) + len(stop)
        body = completion(max_tokens=300, stop=stop, return_token_ids=True, logprobs=0)
        (choice,) = (await client.post("/v1/completions", json=body)).json()["choices"]
        assert choice["text"] == full[: full.index(stop)]
        assert choice["logprobs"] == expected_completion(end, 0)
        chunks = [c["choices"][0] for c in await stream(client, "/v1/completions", body)]
        assert [x for c in chunks for x in c["logprobs"]["tokens"]] == list(full[:end])


async def test_the_shapes_are_those_of_openais_client() -> None:
    async with server() as (client, _):
        body = completion(logprobs=2)
        answer = (await client.post("/v1/completions", json=body)).json()
        lists = Completion.model_validate(answer, strict=True).choices[0].logprobs
        assert lists is not None
        assert (lists.model_extra, len(lists.tokens or ())) == ({}, 20)
        chat = CHAT | {"logprobs": True, "top_logprobs": 2}
        answer = (await client.post("/v1/chat/completions", json=chat)).json()
        logprobs = ChatCompletion.model_validate(answer, strict=True).choices[0].logprobs
        assert logprobs is not None
        first = (logprobs.content or [])[0]
        for model in (logprobs, first, first.top_logprobs[0]):
            assert model.model_extra == {}
        for chunk in await stream(client, "/v1/chat/completions", chat):
            ChatCompletionChunk.model_validate(chunk, strict=True)


async def test_nothing_is_reported_unasked() -> None:
    async with server() as (client, _):
        for path, body in (("completions", completion()), ("chat/completions", CHAT)):
            (choice,) = (await client.post(f"/v1/{path}", json=body)).json()["choices"]
            assert choice["logprobs"] is None


async def test_the_seed_is_told_and_drawn_where_there_is_none() -> None:
    async with server() as (client, parts):
        answer = (await client.post("/v1/completions", json=completion(seed=2**62))).json()
        assert answer["seed"] == 2**62
        drawn = [
            (await client.post("/v1/completions", json=completion())).json()["seed"]
            for _ in range(4)
        ]
        assert len(set(drawn)) == 4
        assert all(0 <= seed < 2**53 for seed in drawn)
        seen = [rules.params.seed for rules in parts.replicas["t0"].rules_seen]
        assert seen == [2**62, *drawn]
        chunks = await stream(client, "/v1/chat/completions", CHAT | {"seed": 3})
        assert {chunk["seed"] for chunk in chunks} == {3}
