"""Log-probabilities of prompts over HTTP and gRPC: OpenAI's echo and vLLM's field."""

from __future__ import annotations

from typing import Any

import pytest

from specdec.v1 import generation_pb2 as pb
from tests.deployments.fake_replica import (
    continuation,
    expected_logprobs,
    expected_prompt_logprobs,
)
from tests.deployments.http_server import TEXT, completion, expected_text, server, stream
from tests.deployments.ingress.test_grpc_api import FakeContext, api

IDS = TEXT.encode("HELLO")


def echoed(count: int, num_tokens: int) -> dict[str, list[Any]]:
    """The four lists of HELLO and its continuation: one letter a token."""
    ids = [*IDS, *continuation(IDS, num_tokens)]
    entries = expected_prompt_logprobs(IDS, count) + expected_logprobs(IDS, num_tokens, count)
    pairs = list(zip(ids[1:], entries, strict=True))
    return {
        "text_offset": list(range(len(ids))),
        "token_logprobs": [None, *(entry.logprob for entry in entries)],
        "tokens": [TEXT.decode([i]) for i in ids],
        "top_logprobs": [
            None,
            *(
                {TEXT.decode([i]): value for i, value in (*entry.top, (token, entry.logprob))}
                for token, entry in pairs
            ),
        ],
    }


@pytest.mark.parametrize("prompt", ["HELLO", list(IDS)])
@pytest.mark.parametrize("count", [0, 2])
async def test_an_echo_with_logprobs_tells_those_of_the_prompt(prompt: Any, count: int) -> None:
    async with server() as (client, _):
        body = completion(prompt=prompt, echo=True, logprobs=count, max_tokens=6)
        (choice,) = (await client.post("/v1/completions", json=body)).json()["choices"]
        assert choice["text"] == "HELLO" + expected_text("HELLO", 6)
        assert choice["logprobs"] == echoed(count, 6)
        assert "prompt_logprobs" not in choice
        chunks = [c["choices"][0] for c in await stream(client, "/v1/completions", body)]
        assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
        for name, values in choice["logprobs"].items():
            assert [x for chunk in chunks for x in chunk["logprobs"][name]] == values


async def test_a_prompt_alone_can_be_scored() -> None:
    """As evaluation harnesses do: echo, logprobs, and nothing generated."""
    async with server() as (client, _):
        prompts = ["HELLO", "A", "HELLO THERE"]
        body = completion(prompt=prompts, echo=True, logprobs=1, max_tokens=0)
        answer = (await client.post("/v1/completions", json=body)).json()
        assert [choice["text"] for choice in answer["choices"]] == prompts
        for prompt, choice in zip(prompts, answer["choices"], strict=True):
            entries = expected_prompt_logprobs(TEXT.encode(prompt), 1)
            expected = [None, *(entry.logprob for entry in entries)]
            assert choice["logprobs"]["token_logprobs"] == expected
            assert len(choice["logprobs"]["tokens"]) == len(prompt)
            assert choice["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 0


def by_id(count: int) -> list[Any]:
    """vLLM's entries for HELLO."""
    return [
        None,
        *(
            {
                str(i): {
                    "logprob": value,
                    "rank": [j for j, _ in entry.top].index(i) + 1 if count else None,
                    "decoded_token": TEXT.decode([i]),
                }
                for i, value in (entry.top or [(token, entry.logprob)])
            }
            for token, entry in zip(IDS[1:], expected_prompt_logprobs(IDS, count), strict=True)
        ),
    ]


@pytest.mark.parametrize("count", [0, 3])
async def test_the_field_is_answered_as_vllm_does(count: int) -> None:
    async with server() as (client, _):
        body = completion(prompt_logprobs=count, n=2)
        answer = (await client.post("/v1/completions", json=body)).json()
        assert [c["prompt_logprobs"] for c in answer["choices"]] == [by_id(count)] * 2
        assert [c["logprobs"] for c in answer["choices"]] == [None, None]
        chat = {"messages": [{"role": "user", "content": "HELLO"}], "max_tokens": 3}
        body = chat | {"prompt_logprobs": count}
        answer = (await client.post("/v1/chat/completions", json=body)).json()
        assert answer["prompt_logprobs"] == by_id(count)


async def test_echo_and_field_ask_each_for_its_own_number() -> None:
    async with server() as (client, _):
        body = completion(prompt_logprobs=3, echo=True, logprobs=1, max_tokens=4)
        (choice,) = (await client.post("/v1/completions", json=body)).json()["choices"]
        assert choice["prompt_logprobs"] == by_id(3)
        assert choice["logprobs"] == echoed(1, 4)


async def test_grpc_tells_them_in_the_first_message() -> None:
    async with api() as (calls, _):
        sampling = pb.SamplingParams(temperature=0, max_tokens=20, prompt_logprobs=2)
        message = pb.GenerateRequest(prompt="HELLO", sampling=sampling)
        first, *others = [part async for part in calls.generate(message, FakeContext())]
        expected = expected_prompt_logprobs(IDS, 2)
        assert list(first.prompt_logprobs.logprobs) == [entry.logprob for entry in expected]
        top_ids = [i for entry in expected for i, _ in entry.top]
        assert list(first.prompt_logprobs.top_ids) == top_ids
        assert not any(part.HasField("prompt_logprobs") for part in others)
        whole = await calls.generate_once(message, FakeContext())
        assert whole.prompt_logprobs == first.prompt_logprobs
