"""The OpenAI routes over a real pool and fake replicas: answers, streams, every refusal."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deployments.api.http.errors import error_response
from deployments.errors import PoolUnavailableError
from specdec_core.config import SchedulerConfig
from specdec_core.messages import Role
from tests.deployments.fake_replica import FakeReplica, continuation
from tests.deployments.http_server import TEXT, completion, expected_text, server, stream

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


async def test_a_completion_is_the_plain_continuation() -> None:
    async with server() as (client, _):
        body = completion(return_token_ids=True)
        answer = (await client.post("/v1/completions", json=body)).json()
        (choice,) = answer["choices"]
        assert choice["text"] == expected_text("HELLO", 20)
        assert choice["token_ids"] == continuation(TEXT.encode("HELLO"), 20)
        assert choice["prompt_token_ids"] == list(TEXT.encode("HELLO"))
        assert choice["finish_reason"] == "length"
        assert answer["usage"] == {
            "prompt_tokens": 5,
            "completion_tokens": 20,
            "total_tokens": 25,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        metrics = answer["metrics"]["speculative_decoding"]
        assert len(metrics["acceptance_histogram"]) == 5
        assert sum(metrics["acceptance_histogram"]) == metrics["num_spec_steps"]
        assert metrics["num_spec_tokens"] == 4


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_streamed_equals_whole(path: str) -> None:
    async with server() as (client, _):
        body = completion(return_token_ids=True, stop=["ZZ"])
        if "chat" in path:
            body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        whole = (await client.post(path, json=body)).json()
        options = {"stream_options": {"include_usage": True}}
        *chunks, last = await stream(client, path, body | options)
        choices = [chunk["choices"][0] for chunk in chunks]
        if "chat" in path:
            text = "".join(c["delta"].get("content", "") for c in choices)
            assert choices[0]["delta"]["role"] == "assistant"
            assert text == whole["choices"][0]["message"]["content"]
        else:
            assert "".join(c["text"] for c in choices) == whole["choices"][0]["text"]
        ids = [i for c in choices for i in c.get("token_ids", [])]
        assert ids == whole["choices"][0]["token_ids"]
        assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
        assert last["choices"] == []
        assert last["usage"] == whole["usage"]
        assert last["metrics"]["speculative_decoding"].keys() == (
            whole["metrics"]["speculative_decoding"].keys()
        )


async def test_a_stop_string_cuts_text_and_ids_wherever_rounds_end() -> None:
    async with server() as (client, parts):
        full = expected_text("HELLO", 20)
        stop = full[7:10]
        body = completion(max_tokens=300, stop=stop, return_token_ids=True)
        answer = (await client.post("/v1/completions", json=body)).json()
        (choice,) = answer["choices"]
        assert choice["text"] == full[: full.index(stop)]
        assert choice["finish_reason"] == "stop"
        assert choice["stop_reason"] == stop
        assert len(choice["token_ids"]) == full.index(stop) + 3
        assert answer["metrics"]["speculative_decoding"]["num_spec_tokens"] == 4
        while parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)


async def test_a_stop_id_is_emitted_but_not_shown() -> None:
    async with server() as (client, _):
        ids = continuation(TEXT.encode("HELLO"), 20)
        body = completion(stop_token_ids=[ids[6]], return_token_ids=True)
        (choice,) = (await client.post("/v1/completions", json=body)).json()["choices"]
        end = ids.index(ids[6]) + 1
        assert choice["token_ids"] == ids[:end]
        assert choice["text"] == TEXT.decode(ids[: end - 1])
        assert choice["stop_reason"] == ids[6]


TOOL = {"type": "function", "function": {"name": "weather"}}
CHAT = {"messages": [{"role": "user", "content": "HI"}]}
REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    (completion(model="other"), 404, "'other' is not served here"),
    (completion(prompt=""), 400, "at least 1 token"),
    (completion(prompt=[]), 400, "at least 1 token"),
    (completion(prompt=[1, 50]), 400, "token id 50 is not in 0..49"),
    (completion(prompt=[-1]), 400, "token id -1"),
    (completion(prompt=["a", ""]), 400, "at least 1 token"),
    (completion(prompt=["a", 7]), 400, "prompt"),
    (completion(prompt=[[1], [True]]), 400, "prompt"),
    (completion(prompt=["a"] * 129), 400, "are 129, the limit is 128"),
    (completion(prompt=7), 400, "prompt"),
    (completion(prompt=[1.5]), 400, "prompt"),
    (completion(prompt="A" * 512), 400, "context length is 512"),
    (completion(prompt="A" * 500), 400, "at most 12"),
    (completion(max_tokens=0), 400, "max_tokens must be at least 1"),
    (completion(max_tokens=-5), 400, "got -5"),
    (completion(max_tokens=10**30), 400, "at most"),
    (completion(max_tokens="many"), 400, "max_tokens"),
    (completion(temperature=-1), 400, "temperature must be in 0..100, got -1"),
    (completion(temperature="hot"), 400, "temperature: Input should be a valid number, got 'hot'"),
    (completion(top_p=0), 400, "top_p"),
    (completion(top_p=2), 400, "top_p must be in (0, 1], got 2"),
    (completion(top_k=-2), 400, "top_k"),
    (completion(top_k=2**31), 400, "0 (off)..2147483647, got 2147483648"),
    (completion(priority=2**31), 400, "priority must be in -2147483647..2147483647, got 2147483"),
    (completion(min_p=1.5), 400, "min_p"),
    (completion(cache_salt=""), 400, "cache_salt is empty"),
    (completion(cache_salt="x" * 257), 400, "cache_salt has 257 characters, the limit is 256"),
    (completion(seed=-(2**63) - 1), 400, "seed"),
    (completion(seed=2**64), 400, "seed"),
    (completion(stop=""), 400, "stop string is empty"),
    (completion(stop=["x"] * 17), 400, "the limit is 16"),
    (completion(stop=[1]), 400, "stop"),
    (completion(chat_template="x"), 400, 'chat_template="x" is not supported here'),
    (completion(stop_token_ids=[99]), 400, "token id 99"),
    (completion(n=0), 400, "n=0"),
    (completion(n=-1), 400, "n=-1"),
    (completion(n=129), 400, "the limit is 128"),
    (completion(n="2"), 400, "n: Input should be a valid integer"),
    (completion(n=True), 400, "n: Input should be a valid integer"),
    (completion(best_of=3), 400, "best_of=3 must equal n=1"),
    (completion(suffix="x"), 400, "suffix="),
    (completion(speculative={"enabled": "perhaps"}), 400, "speculative.enabled"),
    (completion(speculative={"num_speculative_tokens": 5}), 400, "0..4, the server's spec_tokens"),
    (completion(speculative={"method": "hybrid"}), 400, "ngram, none here, got 'hybrid'"),
    (completion(speculative={"method": 3}), 400, "speculative.method"),
    (completion(speculative={"num_speculative_tokens": -1}), 400, "got -1"),
    (completion(speculative=3), 400, "speculative"),
    (completion(request_id="x" * 129), 400, "the limit is 128"),
    ({"model": "fake"}, 400, "prompt"),
    ({"messages": []}, 400, "at least 1 message"),
    ({"messages": "hello"}, 400, "messages"),
    ({"messages": [{"content": "x"}]}, 400, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, 400, "messages.0.content"),
    ({"messages": [{"role": "pirate", "content": "x"}]}, 400, "unknown role pirate"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, 400, "role tool"),
    ({"messages": [{"role": "user", "content": "x", "audio": {"id": "1"}}]}, 400, "0.audio"),
    (CHAT | {"tools": [{"type": "function"}]}, 400, "tools.0: only functions with a name"),
    (
        CHAT | {"tools": [{"type": "function", "function": {"name": ""}}]},
        400,
        "tools.0: only functions with a name",
    ),
    (CHAT | {"tools": [TOOL]}, 400, "chat template knows none"),
    (CHAT | {"tools": TOOL}, 400, "tools"),
    (CHAT | {"tool_choice": "required"}, 400, 'tool_choice="required" needs tools'),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "only parts of type text",
    ),
]


async def test_every_bad_request_is_refused_clearly_and_the_server_goes_on() -> None:
    async with server() as (client, _):
        for body, status, message in REFUSALS:
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            for stream_it in (False, True):
                answer = await client.post(path, json=body | {"stream": stream_it})
                assert answer.status_code == status, (body, answer.text)
                assert message in answer.json()["error"]["message"], (body, answer.text)
                assert isinstance(answer.json()["error"]["code"], str)
        answer = await client.post("/v1/completions", json=completion())
        assert answer.json()["choices"][0]["text"] == expected_text("HELLO", 20)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{not json", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (rb'{"prompt":"A","request_id":"\ud800"}', 400, "not JSON"),
        (rb'{"messages":[{"role":"\ud800","content":"A"}]}', 400, "not JSON"),
        (b"", 400, "not JSON"),
        (b"[1]", 400, "must be a JSON object"),
        (b"[" * 50_000, 400, "not JSON"),
        (b'{"prompt":"A","temperature":NaN}', 400, "temperature must be in 0..100, got nan"),
        (b'{"prompt":"A","top_p":NaN}', 400, "top_p"),
        (b'{"prompt":"A","temperature":Infinity}', 400, "got inf"),
        (b'{"prompt":"A","max_tokens":' + b"9" * 5000 + b"}", 400, "not JSON"),
        (b'{"prompt":"' + b"A" * 100_000 + b'"}', 413, "limit"),
    ],
)
async def test_raw_bodies(content: bytes, status: int, message: str) -> None:
    async with server() as (client, _):
        answer = await client.post("/v1/completions", content=content)
        assert answer.status_code == status, answer.text
        assert message in answer.json()["error"]["message"]


async def test_a_body_without_a_length_is_cut_off_at_the_limit() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"A" * 10_000

    async with server() as (client, _):
        answer = await client.post("/v1/completions", content=endless())
        assert answer.status_code == 413


async def test_a_full_queue_says_when_to_come_back() -> None:
    config = SchedulerConfig(max_queued=0, window=1, max_group_size=1)
    async with server(config=config) as (client, parts):
        slow = asyncio.create_task(client.post("/v1/completions", json=completion(max_tokens=400)))
        while parts.driver.scheduler.counters().num_running == 0:
            await asyncio.sleep(0.001)
        answer = await client.post("/v1/completions", json=completion())
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert (await slow).status_code == 200


def test_who_finds_no_target_is_told_when_to_come_back() -> None:
    answer = error_response(PoolUnavailableError("no target"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


async def test_api_keys() -> None:
    async with server(keys=("one", "two")) as (client, _):
        for header in ({}, {"Authorization": "Bearer no"}, {"Authorization": "two"}):
            answer = await client.post("/v1/completions", json=completion(), headers=header)
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "authentication_error"
        header = {"Authorization": "Bearer two"}
        answer = await client.post("/v1/completions", json=completion(), headers=header)
        assert answer.status_code == 200
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/health")).status_code == 200


async def test_models_readiness_and_unknown_routes() -> None:
    async with server() as (client, _):
        (card,) = (await client.get("/v1/models")).json()["data"]
        assert card["id"] == "fake"
        assert card["max_model_len"] == 512
        assert (card["tool_call_parser"], card["reasoning_parser"]) == ("none", "none")
        assert card["chosen_by"] == {
            "tool_call_parser": "nothing",
            "reasoning_parser": "nothing",
        }
        assert (await client.get("/v1/models/")).json()["data"] == [card]
        assert (await client.get("/v1/models/fake")).json() == card
        for name in ("other", "its/other"):
            unknown = await client.get(f"/v1/models/{name}")
            assert unknown.status_code == 404
            assert f"{name!r} is not served here" in unknown.json()["error"]["message"]
        assert (await client.get("/ready")).status_code == 200
        lost = await client.get("/v1/nothing")
        assert lost.status_code == 404
        assert "error" in lost.json()
        assert (await client.get("/v1/completions")).status_code == 405
    async with server(targets=0) as (client, _):
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


async def test_the_version_is_that_of_the_package() -> None:
    async with server(keys=("one",)) as (client, _):
        answer = await client.get("/version")
        expected = tomllib.loads(PYPROJECT.read_text())["project"]["version"]
        assert answer.json() == {"version": expected}


async def test_a_conversation_is_tokenized_as_the_chat_feeds_it() -> None:
    messages = [{"role": "system", "content": "AB"}, {"role": "user", "content": "CDE"}]
    async with server() as (client, _):
        answer = (await client.post("/tokenize", json={"messages": messages})).json()
        chat = {"messages": messages, "max_tokens": 1}
        usage = (await client.post("/v1/chat/completions", json=chat)).json()["usage"]
        assert answer["count"] == usage["prompt_tokens"] == 5
        back = await client.post("/detokenize", json={"tokens": answer["tokens"]})
        assert back.json()["prompt"] == "ABCDE"


@pytest.mark.parametrize("body", [{}, {"prompt": "A", "messages": [{"role": "user"}]}])
async def test_tokenize_takes_one_of_prompt_and_messages(body: dict[str, Any]) -> None:
    async with server() as (client, _):
        answer = await client.post("/tokenize", json=body)
        assert answer.status_code == 400
        assert "exactly one of prompt and messages" in answer.json()["error"]["message"]


async def test_tokenize_and_back() -> None:
    async with server() as (client, _):
        answer = (await client.post("/tokenize", json={"prompt": "ABC"})).json()
        assert answer["count"] == 3
        back = await client.post("/detokenize", json={"tokens": answer["tokens"]})
        assert back.json()["prompt"] == "ABC"
        assert (await client.post("/detokenize", json={"tokens": [50]})).status_code == 400


@pytest.mark.parametrize(
    "off", [{"enabled": False}, {"method": "none"}, {"num_speculative_tokens": 0}]
)
async def test_speculation_off_gives_the_same_tokens_without_drafts(off: dict[str, Any]) -> None:
    async with server() as (client, _):
        body = completion(speculative=off)
        answer = (await client.post("/v1/completions", json=body)).json()
        assert answer["choices"][0]["text"] == expected_text("HELLO", 20)
        assert answer["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
        assert answer["metrics"]["speculative_decoding"]["num_spec_tokens"] == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_the_usage_tells_what_of_the_prompt_was_cached(path: str) -> None:
    """Of two choices the first one's: the prompt counts once."""
    async with server(targets=0) as (client, parts):
        parts.start_replica("t0", Role.TARGET, FakeReplica(Role.TARGET, num_matched=3))
        while not parts.clients["client"].has_targets:
            await asyncio.sleep(0.005)
        body = completion(n=2)
        if "chat" in path:
            body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        whole = (await client.post(path, json=body)).json()
        options = {"stream_options": {"include_usage": True}}
        *_, last = await stream(client, path, body | options)
        for usage in (whole["usage"], last["usage"]):
            assert usage["prompt_tokens_details"] == {"cached_tokens": 3}
