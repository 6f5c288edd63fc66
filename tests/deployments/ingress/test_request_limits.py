"""The operator's own limits on one request: refused by name and number, before anything runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.ingress.request_limits import RequestLimits
from tests.deployments.http_server import completion, server

LIMITS = RequestLimits(max_prompt_tokens=5, max_output_tokens=20)
CHAT = {"messages": [{"role": "user", "content": "HELLO"}], "temperature": 0}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "completions",
            completion(prompt="HELLO!"),
            "6 tokens, this server takes at most 5 (max_prompt_tokens)",
        ),
        ("completions", completion(prompt=["A", "HELLO!"]), "this server takes at most 5"),
        ("completions", completion(max_tokens=21), "max_tokens=21: this server gives at most 20"),
        (
            "chat/completions",
            CHAT | {"max_completion_tokens": 21},
            "at most 20 tokens (max_output_tokens)",
        ),
    ],
)
async def test_more_than_the_limit_is_refused(
    path: str, body: dict[str, Any], message: str
) -> None:
    async with server(limits=LIMITS) as (client, parts):
        answer = await client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]
        assert not parts.replicas["t0"].rules_seen


async def test_a_request_at_its_limits_is_served_and_an_open_end_is_the_limit() -> None:
    async with server(limits=LIMITS) as (client, _):
        for path, body in (("completions", completion()), ("chat/completions", CHAT)):
            answer = await client.post(f"/v1/{path}", json=body)
            assert answer.json()["usage"]["completion_tokens"] == 20
        cut = completion(prompt="XYHELLO", truncate_prompt_tokens=5)
        assert (await client.post("/v1/completions", json=cut)).status_code == 200


async def test_a_request_beyond_its_time_is_given_up_and_leaves_nothing() -> None:
    async with server(limits=RequestLimits(timeout_s=0.01)) as (client, parts):
        answer = await client.post("/v1/completions", json=completion(max_tokens=500))
        assert answer.status_code == 408
        assert "not finished within 0.01 s" in answer.json()["error"]["message"]
        while parts.driver.scheduler.counters().num_running or parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)
