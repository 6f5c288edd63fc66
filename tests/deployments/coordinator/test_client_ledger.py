"""Limits and figures of an API key: one count for all ingress replicas, nothing leaked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.http.routes import build_http_app
from deployments.app import coordinator_spec
from deployments.config.api_keys import default_name, key_digest, read_key_file
from deployments.config.client_limits import ClientLimits
from deployments.config.service import ServiceConfig, SpecMetrics
from deployments.coordinator.quotas import ClientQuotas
from deployments.errors import ClientLimitError, UnauthorizedError
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from specdec_core.messages import Role
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cell import Cell, cell
from tests.deployments.http_server import SPECULATION, TEXT, completion
from tests.deployments.observed import LEFT, end_of, live

KEYS = {key_digest("a-key"): "ada", key_digest("b-key"): "bob"}


def asked(request_id: str, client: str = "ada") -> Request:
    params = SamplingParams(max_tokens=1)
    return Request(request_id=request_id, prompt_token_ids=(1, 2, 3), params=params, client=client)


def begin(
    ledger: ClientQuotas,
    *ids: str,
    client: str = "ada",
    now: float = 0.0,
    is_resumed: bool = False,
) -> None:
    for request_id in ids:
        request = asked(request_id, client)
        ledger.admit(request, now, is_resumed=is_resumed)
        ledger.begin(live(request, is_resumed=is_resumed))


def hear(ledger: ClientQuotas, event: TokenEvent, client: str = "ada") -> None:
    request = live(asked(event.request_id, client))
    ledger.event(request, event, 0.0)
    if event.finish_reason is not None:
        ledger.end(request, end_of(event))


def test_no_more_run_than_the_limit_and_an_end_makes_room() -> None:
    ledger = ClientQuotas(ClientLimits(max_concurrent=2))
    begin(ledger, "1", "2")
    begin(ledger, "3", client="bob")
    with pytest.raises(ClientLimitError, match="'ada' has 2 requests running, the limit is 2"):
        begin(ledger, "4")
    ledger.end(live(asked("1")), LEFT)
    begin(ledger, "5")
    assert ledger.usage["ada"].num_running == 2
    assert ledger.usage["ada"].num_requests == 3


def test_a_resumed_request_is_not_a_new_one_but_counts_while_it_runs() -> None:
    ledger = ClientQuotas(ClientLimits(max_concurrent=1, requests_per_minute=1))
    begin(ledger, "1", is_resumed=True)
    ledger.end(live(asked("1")), LEFT)
    begin(ledger, "1", is_resumed=True)
    assert (ledger.usage["ada"].num_requests, ledger.usage["ada"].num_running) == (0, 1)
    with pytest.raises(ClientLimitError, match="1 requests running"):
        begin(ledger, "2")


def test_a_minutes_worth_may_come_at_once_and_fills_up_evenly() -> None:
    ledger = ClientQuotas(ClientLimits(requests_per_minute=6))
    begin(ledger, *"123456")
    with pytest.raises(ClientLimitError, match="more than 6 requests a minute") as refused:
        begin(ledger, "7")
    assert refused.value.retry_after_s == pytest.approx(10.0)
    with pytest.raises(ClientLimitError):
        begin(ledger, "7", now=9.9)
    begin(ledger, "7", now=10.1)
    with pytest.raises(ClientLimitError):
        begin(ledger, "8", now=10.2)
    begin(ledger, *"89abcd", now=1000.0)
    with pytest.raises(ClientLimitError):
        begin(ledger, "e", now=1000.0)


def test_callers_without_a_key_are_one_client_without_a_limit() -> None:
    ledger = ClientQuotas(ClientLimits(max_concurrent=1, requests_per_minute=1))
    begin(ledger, *"1234", client="")
    hear(ledger, TokenEvent(request_id="1", index=0, token_ids=(1,)), client="")
    usage = ledger.usage[""]
    assert (usage.num_requests, usage.num_running, usage.num_tokens) == (4, 4, 1)


@given(st.lists(st.tuples(st.sampled_from("be"), st.sampled_from("123456")), max_size=60))
def test_the_count_is_that_of_the_live_requests(steps: list[tuple[str, str]]) -> None:
    ledger = ClientQuotas(ClientLimits(max_concurrent=3))
    running: set[str] = set()
    for step, request_id in steps:
        if step == "e" and request_id in running:
            ledger.end(live(asked(request_id)), LEFT)
            running.remove(request_id)
        elif step == "b" and request_id not in running:
            try:
                begin(ledger, request_id)
                running.add(request_id)
            except ClientLimitError:
                assert len(running) == 3
    assert (ledger.usage["ada"].num_running if ledger.usage else 0) == len(running)


def test_tokens_and_wasted_drafts_are_counted() -> None:
    ledger = ClientQuotas()
    begin(ledger, "1")
    hear(ledger, TokenEvent(request_id="1", index=0, token_ids=(1, 2)))
    stats = RequestStats(num_drafted=9, num_accepted=4)
    hear(ledger, TokenEvent("1", 2, (3,), FinishReason.LENGTH, stats))
    usage = ledger.usage["ada"]
    assert (usage.num_tokens, usage.num_drafted, usage.num_wasted) == (3, 9, 5)


def test_prompt_tokens_count_once_and_cached_ones_at_the_end() -> None:
    ledger = ClientQuotas()
    begin(ledger, "1", "2")
    begin(ledger, "3", client="")
    begin(ledger, "moved here", is_resumed=True)
    stats = RequestStats(num_cached_tokens=2)
    hear(ledger, TokenEvent("1", 0, (3,), FinishReason.LENGTH, stats))
    assert ledger.counters() == {
        "num_client_prompt_tokens_ada": 6,
        "num_client_cached_tokens_ada": 2,
        "num_client_prompt_tokens_": 3,
        "num_client_cached_tokens_": 0,
    }


def test_a_key_file_names_keys_and_says_which_line_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nada  a-key\n\nbob b-key\n")
    assert read_key_file(file) == KEYS
    for text, place in (("ada", ":1"), ("a:b c", ":1"), ("ada a\nada b", ":2"), ("a x\nb x", ":2")):
        file.write_text(text)
        with pytest.raises(ValueError, match=place) as wrong:
            read_key_file(file)
        assert " x" not in str(wrong.value)
    with pytest.raises(ValueError, match="No such file"):
        read_key_file(tmp_path / "none")


def test_names_and_limits_travel_with_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("ada a-key\nbob b-key\n")
    config = ServiceConfig.of(
        api_key_file=file, api_key="c-key", max_concurrent_per_key=3, requests_per_minute_per_key=9
    )
    digest = key_digest("c-key")
    assert config.keys.named == KEYS | {digest: default_name(digest)}
    arrived = ServiceConfig.of(**config.deployable())
    assert arrived.keys.named == config.keys.named
    assert "a-key" not in str(config.deployable())
    limits = ClientLimits(max_concurrent=3, requests_per_minute=9)
    assert coordinator_spec(arrived).limits == limits


def test_a_key_is_known_by_its_name() -> None:
    access = Access(KEYS, "127.0.0.1")
    assert access.check_key("Bearer b-key") == "bob"
    assert Access({}, "127.0.0.1").check_key(None) == ""
    with pytest.raises(UnauthorizedError, match="wrong"):
        access.check_key("Bearer c-key")


async def ingress(parts: Cell, name: str) -> httpx.AsyncClient:
    """An ingress replica of its own, with its own stream to the coordinator."""
    pool = await parts.client(name)
    while pool.state is None or not pool.state.num_targets:
        await asyncio.sleep(0.005)
    service = GenerationService(TEXT, pool, model_name="fake", speculation=SPECULATION)
    app = build_http_app(
        service, Access(KEYS, "127.0.0.1"), max_body_bytes=10_000, metrics=SpecMetrics.SUMMARY
    )
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://localhost",
        headers={"Authorization": "Bearer a-key"},
    )


async def test_three_ingresses_admit_a_keys_limit_together() -> None:
    async with cell(limits=ClientLimits(max_concurrent=10)) as parts:
        parts.start_replica("t0", Role.TARGET)
        clients = [await ingress(parts, f"i{number}") for number in range(3)]
        body = completion(max_tokens=100)
        asked = [
            asyncio.create_task(clients[i % 3].post("/v1/completions", json=body))
            for i in range(30)
        ]
        answers = await asyncio.gather(*asked)
        statuses = [answer.status_code for answer in answers]
        # Those that were refused came while ten others ran.
        assert statuses.count(200) >= 10
        assert statuses.count(200) + statuses.count(429) == 30
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert all("'ada' has 10 requests running" in answer.text for answer in refused)
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        usage = parts.driver.quotas.usage["ada"]
        assert usage.num_running == 0
        assert usage.num_requests == statuses.count(200)
        assert usage.num_tokens == 100 * statuses.count(200)
        # What an ingress has still to tell of its last answer comes a moment later.
        while len(pages := {(await client.get("/metrics")).text for client in clients}) > 1:
            await asyncio.sleep(0.01)
        (page,) = pages
        labels = '{client="ada",model_name="fake"}'
        told = f"specdec_client_generation_tokens_total{labels} {usage.num_tokens}"
        assert told in page


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    async with cell(limits=ClientLimits(max_concurrent=1)) as parts:
        parts.start_replica("t0", Role.TARGET)
        client = await ingress(parts, "i0")
        body = completion(max_tokens=500, request_id="mine")
        asked = asyncio.create_task(client.post("/v1/completions", json=body))
        while not parts.driver.quotas.usage:
            await asyncio.sleep(0.001)
        asked.cancel()
        while parts.driver.quotas.usage["ada"].num_running:
            await asyncio.sleep(0.005)
        answer = await client.post("/v1/completions", json=completion())
        assert answer.status_code == 200
