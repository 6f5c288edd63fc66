"""Several choices and several prompts in one request: order, seeds, counts, and how they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import GenerationRequest
from specdec_core.config import SchedulerConfig
from specdec_core.sampling_params import derive_seed
from tests.deployments.fake_replica import continuation
from tests.deployments.http_server import (
    SPECULATION,
    TEXT,
    completion,
    expected_text,
    server,
    stream,
)

PATHS = ["/v1/completions", "/v1/chat/completions"]


def body_for(path: str, **fields: Any) -> dict[str, Any]:
    body = completion(**fields)
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    return body


def text_of(choice: dict[str, Any]) -> str:
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


@pytest.mark.parametrize("path", PATHS)
async def test_n_choices_stand_in_order_and_each_has_its_own_seed(path: str) -> None:
    async with server() as (client, parts):
        body = body_for(path, n=3, seed=7, return_token_ids=True)
        answer = (await client.post(path, json=body)).json()
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        for choice in answer["choices"]:
            assert text_of(choice) == expected_text("HELLO", 20)
            assert choice["token_ids"] == continuation(TEXT.encode("HELLO"), 20)
        seeds = {rules.params.seed for rules in parts.replicas["t0"].rules_seen}
        assert seeds == {7, derive_seed(7, 1), derive_seed(7, 2)}
        assert answer["seed"] == 7
        usage = answer["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 60)
        assert "metrics" not in answer


async def test_a_drawn_seed_sent_again_gives_every_choice_its_seed_again() -> None:
    async with server() as (client, parts):
        body = completion(n=2, prompt=["A", "BB"])
        drawn = (await client.post("/v1/completions", json=body)).json()["seed"]
        first = [rules.params.seed for rules in parts.replicas["t0"].rules_seen]
        await client.post("/v1/completions", json=body | {"seed": drawn})
        again = [rules.params.seed for rules in parts.replicas["t0"].rules_seen[4:]]
        assert sorted(first) == sorted(again) == sorted([drawn, derive_seed(drawn, 1)] * 2)


@pytest.mark.parametrize("prompts", [["A", "BB"], [[17], [18, 18]]])
async def test_prompts_of_a_list_are_answered_one_by_one(prompts: list[Any]) -> None:
    async with server() as (client, _):
        body = completion(prompt=prompts, n=2, return_token_ids=True)
        answer = (await client.post("/v1/completions", json=body)).json()
        texts = [choice["text"] for choice in answer["choices"]]
        assert texts == [expected_text(p, 20) for p in ("A", "A", "BB", "BB")]
        asked = [choice["prompt_token_ids"] for choice in answer["choices"]]
        assert asked == [[17], [17], [18, 18], [18, 18]]
        assert answer["usage"]["prompt_tokens"] == 3
        assert answer["usage"]["completion_tokens"] == 80


@pytest.mark.parametrize("path", PATHS)
async def test_streamed_choices_are_those_of_the_whole_answer(path: str) -> None:
    async with server() as (client, _):
        body = body_for(path, n=3, seed=7, return_token_ids=True, stop=["ZZ"])
        whole = (await client.post(path, json=body)).json()
        options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        *chunks, last = await stream(client, path, body | options)
        for index, expected in enumerate(whole["choices"]):
            mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
            parts = [c["delta"].get("content", "") if "delta" in c else c["text"] for c in mine]
            assert "".join(parts) == text_of(expected)
            assert [i for c in mine for i in c.get("token_ids", [])] == expected["token_ids"]
            assert mine[-1]["finish_reason"] == expected["finish_reason"]
            assert sum(c["finish_reason"] is not None for c in mine) == 1
        assert last["usage"] == whole["usage"]
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert counts[-1] == whole["usage"]["completion_tokens"]


@pytest.mark.parametrize("prompt", ["HELLO", [24, 21, 28, 28, 31]])
async def test_an_echo_puts_the_prompt_before_the_text(prompt: Any) -> None:
    async with server() as (client, _):
        body = completion(prompt=prompt, echo=True, n=2)
        whole = (await client.post("/v1/completions", json=body)).json()
        expected = "HELLO" + expected_text("HELLO", 20)
        assert [choice["text"] for choice in whole["choices"]] == [expected] * 2
        chunks = await stream(client, "/v1/completions", body)
        for index in range(2):
            mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
            assert "".join(choice["text"] for choice in mine) == expected


async def test_a_prompt_may_be_cut_to_its_end() -> None:
    async with server() as (client, _):
        body = completion(prompt="XYHELLO", truncate_prompt_tokens=5, return_token_ids=True)
        (choice,) = (await client.post("/v1/completions", json=body)).json()["choices"]
        assert choice["text"] == expected_text("HELLO", 20)
        assert choice["prompt_token_ids"] == list(TEXT.encode("HELLO"))
        wrong = completion(truncate_prompt_tokens=0)
        assert (await client.post("/v1/completions", json=wrong)).status_code == 400


async def test_a_chat_answer_may_go_on_with_the_last_message() -> None:
    async with server() as (client, _):
        messages = [{"role": "assistant", "content": "HELLO"}]
        body = completion(messages=messages, continue_final_message=True)
        del body["prompt"]
        answer = await client.post("/v1/chat/completions", json=body)
        assert text_of(answer.json()["choices"][0]) == expected_text("HELLO", 20)
        for wrong in (
            {"add_generation_prompt": True},
            {"chat_template_kwargs": {"messages": []}},
        ):
            answer = await client.post("/v1/chat/completions", json=body | wrong)
            assert answer.status_code == 400, answer.text


async def test_aborting_a_request_ends_all_its_choices() -> None:
    async with server() as (client, parts):
        other = await parts.client("other")
        while other.state is None:
            await asyncio.sleep(0.005)
        body = completion(n=3, request_id="mine", max_tokens=500)
        asked = asyncio.create_task(client.post("/v1/completions", json=body))
        while parts.driver.scheduler.counters().num_running < 3:
            await asyncio.sleep(0.001)
        assert await other.abort("mine")
        answer = (await asked).json()
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"abort"}
        while parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)


async def test_one_choice_too_many_for_the_queue_ends_them_all() -> None:
    config = SchedulerConfig(max_queued=1, window=1, max_group_size=1)
    async with server(config=config) as (client, parts):
        answer = await client.post("/v1/completions", json=completion(n=4, max_tokens=400))
        assert answer.status_code == 429
        while parts.driver.scheduler.has_work or parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)
        assert (await client.post("/v1/completions", json=completion())).status_code == 200


async def test_a_client_that_leaves_its_stream_frees_every_choice() -> None:
    async with server() as (_, parts):
        pool = await parts.client("streamer")
        while pool.state is None:
            await asyncio.sleep(0.005)
        service = GenerationService(TEXT, pool, model_name="fake", speculation=SPECULATION)
        ask = GenerationRequest(sampling={"max_tokens": 400, "temperature": 0.0})
        generations = await service.checked_choices([TEXT.encode("HELLO")], ask, 3)
        pieces = service.run_choices(generations)
        await anext(pieces)
        await pieces.aclose()
        while parts.driver.scheduler.has_work or parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_timing_of_an_answer_is_told(is_streamed: bool) -> None:
    """Its tokens came in several rounds, so the last came later than the first."""
    async with server() as (client, _):
        body = completion(max_tokens=100)
        if is_streamed:
            body["stream_options"] = {"include_usage": True}
            metrics = (await stream(client, "/v1/completions", body))[-1]["metrics"]
        else:
            metrics = (await client.post("/v1/completions", json=body)).json()["metrics"]
        first, between = metrics["time_to_first_token_ms"], metrics["generation_time_ms"]
        assert first > 0
        assert between > 0
        assert metrics["mean_itl_ms"] == pytest.approx(between / 99)
        assert metrics["tokens_per_second"] == pytest.approx(1e5 / (first + between))
        assert metrics["queue_time_ms"] >= 0
