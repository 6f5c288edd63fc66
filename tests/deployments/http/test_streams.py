"""A stream that waits: headers leave at once, comments follow, and a refusal keeps its status."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from deployments.api.http.sse import COMMENT
from deployments.config.client_limits import ClientLimits
from deployments.coordinator.streams import IngressOutbox
from deployments.ingress.request_limits import RequestLimits
from specdec_core.config import SchedulerConfig
from specdec_core.messages import LeaseRow, RowResult, RowStatus
from tests.deployments.cell import Cell
from tests.deployments.fake_replica import VOCAB_SIZE, continuation
from tests.deployments.http_server import (
    TEXT,
    application,
    completion,
    expected_text,
    listening,
    server,
)
from tests.deployments.overload.test_waiting import ONE_SEAT, StandingReplica, counted

PATH = "/v1/completions"
CHAT_PATH = "/v1/chat/completions"
QUICK_S = 0.05
"""Between two comments."""


def chat(**fields: Any) -> dict[str, Any]:
    body = completion(**fields)
    return body | {"messages": [{"role": "user", "content": body.pop("prompt")}]}


@contextlib.asynccontextmanager
async def standing(
    **settings: Any,
) -> AsyncIterator[tuple[httpx.AsyncClient, Cell, StandingReplica]]:
    """A real server whose only target runs nothing until it may."""
    replica = StandingReplica()
    settings = {"keep_alive_s": QUICK_S, "make_target": lambda: replica} | settings
    async with contextlib.AsyncExitStack() as open_now:
        app, parts = await open_now.enter_async_context(application(**settings))
        url = await open_now.enter_async_context(listening(app))
        open_now.callback(replica.may_go.set)
        client = httpx.AsyncClient(base_url=url, timeout=20)
        yield await open_now.enter_async_context(client), parts, replica


def events_of(lines: list[str]) -> list[dict[str, Any]]:
    """The events of a stream that has ended with [DONE]."""
    told = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert told[-1] == "[DONE]"
    return [json.loads(one) for one in told[:-1]]


def text_of(events: list[dict[str, Any]]) -> str:
    choices = [one for event in events for one in event["choices"] if one["index"] == 0]
    return "".join(one.get("text", one.get("delta", {}).get("content")) or "" for one in choices)


async def comments(lines: AsyncIterator[str], number: int) -> None:
    """Wait for so many; nothing else comes."""
    found = 0
    async for line in lines:
        if line:
            assert f"{line}\n\n" == COMMENT
            found += 1
        if found == number:
            return


BODIES = [
    (PATH, completion()),
    (PATH, completion(n=3, seed=1)),
    (PATH, completion(prompt=["HELLO", "ABC"])),
    (PATH, completion(echo=True, logprobs=1)),
    (PATH, completion(resume={"token_ids": continuation(TEXT.encode("HELLO"), 3)})),
    (CHAT_PATH, chat()),
    (CHAT_PATH, chat(n=2)),
]


@pytest.mark.parametrize(("path", "body"), BODIES)
@pytest.mark.parametrize("is_queued", [False, True])
async def test_headers_and_comments_come_before_the_first_token(
    path: str, body: dict[str, Any], is_queued: bool
) -> None:
    config = ONE_SEAT if is_queued else SchedulerConfig()
    async with standing(config=config) as (client, parts, replica):
        seated = asyncio.create_task(client.post(PATH, json=completion()))
        await counted(parts, num_waiting=0, num_running=1)
        async with client.stream("POST", path, json=body | {"stream": True}) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-accel-buffering"] == "no"
            lines = answer.aiter_lines()
            await comments(lines, 2)
            assert bool(parts.driver.scheduler.counters().num_waiting) is is_queued
            replica.may_go.set()
            shown = text_of(events_of([line async for line in lines]))
        assert (await seated).status_code == 200
        whole = (await client.post(path, json=body)).json()["choices"][0]
        full = whole.get("text") or whole["message"]["content"]
        brought = body.get("resume", {}).get("token_ids", ())
        assert TEXT.decode(brought) + shown == full


async def test_openais_client_reads_over_comments() -> None:
    async with standing() as (client, _, replica):
        url = f"{client.base_url}/v1"
        async with AsyncOpenAI(base_url=url, api_key="-") as asked:
            stream = await asked.completions.create(**completion(), stream=True)
            asyncio.get_running_loop().call_later(5 * QUICK_S, replica.may_go.set)
            text = "".join([chunk.choices[0].text async for chunk in stream])
            assert text == expected_text("HELLO", 20)


async def test_a_replica_that_stops_midway_leaves_no_silence() -> None:
    async with standing() as (client, _, replica):
        replica.may_go.set()
        body = completion(max_tokens=300, stream=True)
        async with client.stream("POST", PATH, json=body) as answer:
            lines = answer.aiter_lines()
            while not (await anext(lines)).startswith("data: "):
                pass
            replica.may_go.clear()
            seen = [await anext(lines)]
            while f"{seen[-1]}\n\n" != COMMENT:
                seen.append(await anext(lines))
            replica.may_go.set()
            seen += [line async for line in lines]
        assert events_of(seen)[-1]["choices"][0]["finish_reason"] == "length"


async def test_a_stream_that_is_never_silent_has_no_comment() -> None:
    async with server() as (client, _):
        answer = await client.post(PATH, json=completion(max_tokens=300, stream=True))
        assert ":" not in {line[:1] for line in answer.text.splitlines()}


REFUSED = [
    (completion(temperature=-1), 400),
    (completion(prompt=""), 400),
    (completion(max_tokens=10_000), 400),
    (completion(n=129), 400),
    (completion(model="other"), 404),
    (completion(prompt=["a", "A" * 512]), 400),
    (completion(resume={"token_ids": [1] * 21}), 400),
]


@pytest.mark.parametrize(("body", "status"), REFUSED)
async def test_what_is_found_without_waiting_is_a_status(body: dict[str, Any], status: int) -> None:
    async with standing(keep_alive_s=20.0) as (client, parts, _):
        answer = await client.post(PATH, json=body | {"stream": True})
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
        assert parts.driver.scheduler.num_live == 0


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("says_accepted", [True, False])
async def test_a_full_queue_is_a_status_whichever_choice_finds_it(
    monkeypatch: pytest.MonkeyPatch, number: int, says_accepted: bool
) -> None:
    if not says_accepted:
        monkeypatch.setattr(IngressOutbox, "put_accepted", lambda *_: None)
    config = SchedulerConfig(max_queued=number - 1, window=1, max_group_size=1)
    async with standing(config=config, keep_alive_s=20.0) as (client, parts, replica):
        seated = asyncio.create_task(client.post(PATH, json=completion()))
        await counted(parts, num_waiting=0, num_running=1)
        answer = await client.post(PATH, json=completion(n=number, stream=True))
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) >= 1
        await counted(parts, num_waiting=0, num_running=1)
        replica.may_go.set()
        assert (await seated).status_code == 200


@pytest.mark.parametrize("limits", [{"max_concurrent": 0}, {"requests_per_minute": 0}])
async def test_a_limit_of_the_key_is_a_status(limits: dict[str, int]) -> None:
    settings: dict[str, Any] = {"keys": ("k",), "limits_per_key": ClientLimits(**limits)}
    settings["keep_alive_s"] = 20.0
    async with standing(**settings) as (client, _, _):
        header = {"Authorization": "Bearer k"}
        answer = await client.post(PATH, json=completion(stream=True), headers=header)
        assert answer.status_code == 429
        wrong = await client.post(PATH, json=completion(stream=True))
        assert wrong.status_code == 401


@pytest.mark.parametrize("lost", ["target", "coordinator"])
async def test_a_pool_that_is_away_is_a_status(lost: str) -> None:
    async with server() as (client, parts):
        pool = parts.clients["client"]
        pool._resume_timeout_s = 0.1
        if lost == "target":
            await parts.cancel("t0")
        else:
            await parts.kill_coordinator()
        while pool.is_serving:
            await asyncio.sleep(0.01)
        answer = await client.post(PATH, json=completion(stream=True))
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"


IDS = continuation(TEXT.encode("HELLO"), 20)
WRONG = [*IDS[:4], (IDS[4] + 1) % VOCAB_SIZE]


@pytest.mark.parametrize(
    ("settings", "fields", "kind", "message"),
    [
        ({"limits": RequestLimits(timeout_s=0.3)}, {}, "timeout_error", "not finished within"),
        ({}, {"resume": {"token_ids": WRONG}}, "invalid_request_error", "token id"),
    ],
)
async def test_what_is_found_later_is_an_event(
    settings: dict[str, Any], fields: dict[str, Any], kind: str, message: str
) -> None:
    async with standing(**settings) as (client, parts, replica):
        async with client.stream("POST", PATH, json=completion(stream=True, **fields)) as answer:
            assert answer.status_code == 200
            if "resume" in fields:
                replica.may_go.set()
            (event,) = events_of([line async for line in answer.aiter_lines()])
        assert event["error"]["type"] == kind
        assert message in event["error"]["message"]
        replica.may_go.set()
        await counted(parts, num_waiting=0, num_running=0)


async def test_a_pool_that_fails_later_is_an_event() -> None:
    async with standing() as (client, parts, _):
        async with client.stream("POST", PATH, json=completion(stream=True)) as answer:
            assert answer.status_code == 200
            parts.clients["client"].give_up("away")
            (event,) = events_of([line async for line in answer.aiter_lines()])
        assert event["error"]["type"] == "service_unavailable_error"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(RowStatus.INVALID, "invalid_request_error"), (RowStatus.FAILED, "internal_error")],
)
async def test_what_a_target_refuses_is_an_event(
    monkeypatch: pytest.MonkeyPatch, status: RowStatus, kind: str
) -> None:
    """A grammar that this answer exhausts, rules that ban every token; a failure of the target."""
    async with standing() as (client, parts, replica):

        def refused(row: LeaseRow) -> RowResult:
            return RowResult(sequence_id=row.sequence_id, status=status, error="too complex")

        monkeypatch.setattr(replica, "_run", refused)
        async with client.stream("POST", PATH, json=completion(stream=True)) as answer:
            assert answer.status_code == 200
            replica.may_go.set()
            (event,) = events_of([line async for line in answer.aiter_lines()])
        assert event["error"]["type"] == kind
        assert "too complex" in event["error"]["message"]
        await counted(parts, num_waiting=0, num_running=0)


@pytest.mark.parametrize("keep_alive_s", [QUICK_S, 30.0])
async def test_a_coordinator_that_acknowledges_nothing_is_waited_for_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch, keep_alive_s: float
) -> None:
    """An older one: the headers leave with the first token, or when a comment is due."""
    monkeypatch.setattr(IngressOutbox, "put_accepted", lambda *_: None)
    async with standing(keep_alive_s=keep_alive_s) as (client, _, replica):
        if keep_alive_s > 1:
            asyncio.get_running_loop().call_later(0.1, replica.may_go.set)
        async with client.stream("POST", PATH, json=completion(stream=True)) as answer:
            lines = answer.aiter_lines()
            if keep_alive_s < 1:
                await comments(lines, 1)
            replica.may_go.set()
            events = events_of([line async for line in lines])
        assert text_of(events) == expected_text("HELLO", 20)


async def test_who_leaves_before_the_first_token_is_worked_for_no_more() -> None:
    async with standing(config=ONE_SEAT) as (client, parts, replica):
        seated = asyncio.create_task(client.post(PATH, json=completion()))
        await counted(parts, num_waiting=0, num_running=1)
        async with client.stream("POST", PATH, json=completion(stream=True)) as answer:
            await comments(answer.aiter_lines(), 1)
            assert parts.driver.scheduler.counters().num_waiting == 1
        await counted(parts, num_waiting=0, num_running=1)
        replica.may_go.set()
        assert (await seated).status_code == 200
        assert len(replica.rules_seen) == 1
