"""The official client over our routes: it parses what we send, and gets what it asks for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.deployments.cell import Cell
from tests.deployments.fake_replica import continuation
from tests.deployments.http_server import TEXT, expected_text, server

MESSAGES: list[Any] = [{"role": "user", "content": "HELLO"}]
PLAIN = {"speculative": {"enabled": False}}
GREEDY: dict[str, Any] = {"model": "fake", "max_tokens": 20, "temperature": 0}


@contextlib.asynccontextmanager
async def client(*keys: str) -> AsyncIterator[tuple[AsyncOpenAI, Cell]]:
    async with server(keys=keys) as (http, parts):
        inner = httpx.AsyncClient(transport=http._transport)
        async with AsyncOpenAI(
            base_url="http://localhost/v1", api_key=keys[0] if keys else "-", http_client=inner
        ) as asked:
            yield asked, parts


async def test_completions_with_and_without_speculation() -> None:
    async with client() as (asked, _):
        whole = await asked.completions.create(prompt="HELLO", **GREEDY)
        plain = await asked.completions.create(prompt="HELLO", **GREEDY, extra_body=PLAIN)
        assert whole.choices[0].text == plain.choices[0].text == expected_text("HELLO", 20)
        assert whole.usage is not None
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (5, 20)
        assert whole.usage.prompt_tokens_details is not None
        assert whole.usage.prompt_tokens_details.cached_tokens == 0
        chunks = [
            chunk
            async for chunk in await asked.completions.create(
                prompt="HELLO", **GREEDY, stream=True, stream_options={"include_usage": True}
            )
        ]
        shown = "".join(c.choices[0].text for c in chunks if c.choices)
        assert shown == whole.choices[0].text
        assert chunks[-1].usage == whole.usage


async def test_chats_of_several_choices_whole_and_streamed() -> None:
    async with client() as (asked, _):
        fields = GREEDY | {"messages": MESSAGES, "n": 3, "seed": 5}
        whole = await asked.chat.completions.create(**fields)
        assert [choice.index for choice in whole.choices] == [0, 1, 2]
        assert {c.message.content for c in whole.choices} == {expected_text("HELLO", 20)}
        texts = ["", "", ""]
        reasons: list[Any] = [None] * 3
        async for chunk in await asked.chat.completions.create(**fields, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        assert texts == [expected_text("HELLO", 20)] * 3
        assert reasons == ["length"] * 3


@pytest.mark.parametrize("extra", [{}, PLAIN])
async def test_log_probabilities_are_one_per_token(extra: dict[str, Any]) -> None:
    async with client() as (asked, _):
        answer = await asked.chat.completions.create(
            messages=MESSAGES, logprobs=True, top_logprobs=2, **GREEDY, extra_body=extra
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        assert len(logprobs.content) == 20
        assert all(len(entry.top_logprobs) == 2 for entry in logprobs.content)


@pytest.mark.parametrize("extra", [{}, PLAIN])
async def test_a_stop_string_ends_within_what_a_round_accepted(extra: dict[str, Any]) -> None:
    async with client() as (asked, _):
        full = expected_text("HELLO", 20)
        for start in range(2, 12):
            stop = full[start : start + 2]
            answer = await asked.completions.create(
                prompt="HELLO", stop=stop, **GREEDY, extra_body=extra
            )
            assert answer.choices[0].text == full[: full.index(stop)]
            assert answer.choices[0].finish_reason == "stop"


async def test_the_seed_that_was_drawn_is_told_and_can_be_sent() -> None:
    async with client() as (asked, parts):
        fields = GREEDY | {"messages": MESSAGES, "temperature": 1.0}
        first = await asked.chat.completions.create(**fields)
        assert first.model_extra is not None
        seed = first.model_extra["seed"]
        await asked.chat.completions.create(**fields, seed=seed)
        seeds = [rules.params.seed for rules in parts.replicas["t0"].rules_seen]
        assert seeds == [seed, seed]


async def test_a_schema_and_tools_are_taken_as_the_client_sends_them() -> None:
    pytest.importorskip("llguidance")
    async with client() as (asked, parts):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        wrapper: Any = {"name": "a", "schema": schema, "strict": True}
        await asked.chat.completions.create(
            messages=MESSAGES,
            response_format={"type": "json_schema", "json_schema": wrapper},
            **GREEDY,
        )
        (rules,) = parts.replicas["t0"].rules_seen
        assert rules.params.grammar is not None
        tool: Any = {"type": "function", "function": {"name": "f", "parameters": schema}}
        with pytest.raises(openai.BadRequestError, match="chat template knows none"):
            await asked.chat.completions.create(messages=MESSAGES, tools=[tool], **GREEDY)


async def test_models_and_errors_are_the_clients_own() -> None:
    async with client("secret") as (asked, _):
        models = [model.id async for model in asked.models.list()]
        assert models == ["fake"]
        assert (await asked.models.retrieve("fake")).id == "fake"
        with pytest.raises(openai.NotFoundError, match="'other' is not served here"):
            await asked.completions.create(model="other", prompt="A")
        with pytest.raises(openai.BadRequestError, match="top_p"):
            await asked.completions.create(prompt="A", model="fake", top_p=3)
        wrong: Any = "hot"
        with pytest.raises(openai.BadRequestError) as refused:
            await asked.completions.create(prompt="A", model="fake", temperature=wrong)
        assert (refused.value.param, refused.value.code) == ("temperature", "invalid_type")
        asked.api_key = "wrong"
        with pytest.raises(openai.AuthenticationError):
            await asked.models.list()


async def test_token_ids_come_with_the_text_where_they_are_asked_for() -> None:
    async with client() as (asked, _):
        answer = await asked.completions.create(
            prompt="HELLO", **GREEDY, extra_body={"return_token_ids": True}
        )
        told = answer.choices[0].model_extra
        assert told is not None
        assert told["token_ids"] == continuation(TEXT.encode("HELLO"), 20)
