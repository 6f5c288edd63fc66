"""Coordinator, replicas and ingress over gRPC in one process: what they promise each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deployments.coordinator import draining as leaving
from deployments.coordinator.driver import SchedulerDriver
from deployments.errors import PoolUnavailableError
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.wire import liveness as silence
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.errors import InvalidRequestError, QueueFullError
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.request import FinishReason, Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler
from tests.deployments.cell import Cell, cell, served
from tests.deployments.fake_replica import FakeReplica, continuation, expected_logprobs

DRAFTING = SchedulerConfig(
    speculation=SpeculationConfig(method=SpecMethod.DRAFT_MODEL, k_policy=KPolicyName.FIXED)
)
PLAIN = SchedulerConfig(speculation=SpeculationConfig(method=SpecMethod.NONE))


def request(name: str = "a", num_tokens: int = 30, **fields: Any) -> Request:
    prompt = tuple(ord(letter) % 50 for letter in f"prompt {name}")
    params = SamplingParams(max_tokens=num_tokens, temperature=0.0)
    return Request(request_id=name, prompt_token_ids=prompt, params=params, **fields)


def expected(asked: Request) -> list[int]:
    return continuation(asked.prompt_token_ids, asked.params.max_tokens)


async def collect(client: SchedulerClient, asked: Request) -> list[int]:
    tokens: list[int] = []
    async for event in client.generate(asked):
        assert event.index == len(tokens) + len(asked.emitted_token_ids)
        tokens += event.token_ids
    return tokens


@pytest.fixture
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a heartbeat and for a lost ingress: seconds in truth, as the simulated service waits."""
    monkeypatch.setattr(silence, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(leaving, "_INGRESS_COMES_BACK_S", 0.2)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("config", [DRAFTING, PLAIN, SchedulerConfig()])
async def test_concurrent_requests_get_the_tokens_of_plain_decoding(
    config: SchedulerConfig,
) -> None:
    async with served(config, has_draft=True) as (_, client):
        asked = [request(f"r{i}", 5 + 3 * i) for i in range(12)]
        answers = await asyncio.gather(*(collect(client, one) for one in asked))
        assert answers == [expected(one) for one in asked]


async def test_two_targets_and_two_drafts_all_work() -> None:
    async with cell(DRAFTING) as parts:
        for name, role in (("t0", Role.TARGET), ("t1", Role.TARGET)):
            parts.start_replica(name, role)
        for name in ("d0", "d1"):
            parts.start_replica(name, Role.DRAFT)
        client = await parts.client()
        await until(lambda: len(parts.driver.replicas) == 4)
        asked = [request(f"r{i}", 40) for i in range(32)]
        answers = await asyncio.gather(*(collect(client, one) for one in asked))
        assert answers == [expected(one) for one in asked]
        assert all(replica.num_leases for replica in parts.replicas.values())


async def test_rows_of_equal_length_share_batches_of_a_window_that_is_larger() -> None:
    """EXSPEC as the paper has it. The oldest rows would be of two lengths in every batch."""
    config = replace(
        PLAIN, max_group_size=2, window=8, max_group_wait_s=10.0, grouping="equal_length"
    )
    async with cell(config) as parts:
        client = await parts.client()
        asked = [request("longer" if i % 2 else "short", 6) for i in range(8)]
        asked = [replace(one, request_id=str(i)) for i, one in enumerate(asked)]
        answers = [asyncio.create_task(collect(client, one)) for one in asked]
        await until(lambda: parts.driver.scheduler.counters().num_waiting == 8)
        parts.start_replica("t0", Role.TARGET)
        assert await asyncio.gather(*answers) == [expected(one) for one in asked]
        counters = parts.driver.scheduler.counters()
        assert counters.group_sizes == (0, 0, counters.num_equal_length_groups)


async def test_a_coordinator_restart_is_a_pause() -> None:
    async with served(DRAFTING) as (parts, client):
        asked = request(num_tokens=150)
        asked = replace(asked, params=replace(asked.params, num_logprobs=2))
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        async for event in client.generate(asked):
            if not tokens:
                await parts.kill_coordinator()
                await parts.start_coordinator()
            tokens += event.token_ids
            logprobs += event.logprobs
        assert tokens == expected(asked)
        assert logprobs == expected_logprobs(asked.prompt_token_ids, 150, 2)
        assert client.num_divergences == 0


async def test_a_request_that_cannot_be_sent_is_not_kept() -> None:
    """Nothing of it would reach the coordinator, and every later stream would break on it."""
    async with served(DRAFTING) as (parts, client):
        for _ in range(2):
            with pytest.raises(UnicodeEncodeError):
                await anext(client.generate(request("\ud800")))
        await parts.kill_coordinator()
        await parts.start_coordinator()
        assert await collect(client, request()) == expected(request())


@pytest.mark.parametrize("victim", ["t0", "d0"])
async def test_a_dead_replica_is_replaced_without_a_lost_token(victim: str) -> None:
    async with served(DRAFTING, has_draft=True) as (parts, client):
        asked = request(num_tokens=150)
        tokens: list[int] = []
        async for event in client.generate(asked):
            if not tokens:
                await parts.cancel(victim)
                role = Role.TARGET if victim == "t0" else Role.DRAFT
                parts.start_replica(f"{victim}-again", role)
            tokens += event.token_ids
        assert tokens == expected(asked)


async def test_leaving_the_iteration_frees_the_kv() -> None:
    async with served(PLAIN) as (parts, client):
        events = client.generate(request(num_tokens=200))
        await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        await until(lambda: parts.replicas["t0"].num_slots == 0)
        assert parts.driver.scheduler.counters().num_running == 0


async def test_abort_from_another_ingress_ends_the_request() -> None:
    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET)
        client, other = await parts.client("one"), await parts.client("two")
        await until(lambda: other.state is not None)
        events = client.generate(request(num_tokens=200))
        await anext(events)
        assert await other.abort("a")
        reasons = [event.finish_reason async for event in events]
        assert reasons[-1] is FinishReason.ABORT
        assert not await other.abort("a")


async def test_refusals_reach_only_the_one_who_asked() -> None:
    config = SchedulerConfig(max_queued=0, window=1, max_group_size=1)
    async with served(config) as (parts, client):
        await until(lambda: client.state is not None and client.state.num_targets == 1)
        running = asyncio.create_task(collect(client, request("a", 200)))
        await until(lambda: parts.driver.scheduler.counters().num_running == 1)
        with pytest.raises(QueueFullError) as full:
            await collect(client, request("b"))
        assert full.value.limit == 0
        assert full.value.retry_after_s > 0
        with pytest.raises(InvalidRequestError, match="512"):
            await collect(client, request("c", 10_000))
        with pytest.raises(InvalidRequestError, match="in use"):
            await collect(client, request("a"))
        assert await running == expected(request("a", 200))


async def test_a_failing_pool_reaches_every_waiting_client() -> None:
    async with cell(PLAIN) as parts:
        client = await parts.client()
        await until(lambda: client.state is not None)
        waiting = [asyncio.create_task(collect(client, request(f"r{i}"))) for i in range(3)]
        await until(lambda: parts.driver.scheduler.counters().num_waiting == 3)

        def broken(now: float) -> None:
            raise AssertionError("a seeded bug")

        parts.driver.scheduler.advance = broken  # type: ignore[method-assign,assignment]
        parts.start_replica("t0", Role.TARGET)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [PoolUnavailableError] * 3
        assert "seeded" not in str(outcomes[0])


async def test_a_failing_lease_takes_the_replica_out_and_another_goes_on() -> None:
    class Failing(FakeReplica):
        def execute(self, lease: GroupLease) -> GroupResult:
            if self.num_leases == 3:
                raise RuntimeError("device lost")
            return super().execute(lease)

    async with served(PLAIN, target=Failing(Role.TARGET)) as (parts, client):
        answer = asyncio.create_task(collect(client, request()))
        await until(lambda: parts.loops["t0"].failure is not None)
        parts.start_replica("t1", Role.TARGET)
        assert await answer == expected(request())


@pytest.mark.usefixtures("no_long_waits")
async def test_a_draining_replica_moves_its_sequences() -> None:
    async with served(PLAIN) as (parts, client):
        asked = request(num_tokens=150)
        tokens: list[int] = []
        async for event in client.generate(asked):
            if not tokens:
                parts.start_replica("t1", Role.TARGET)
                await until(lambda: len(parts.driver.replicas) == 2)
                await parts.loops["t0"].drain(5)
                assert "t0" not in parts.driver.replicas or not parts.replicas["t0"].cached
            tokens += event.token_ids
        assert tokens == expected(asked)


@pytest.mark.usefixtures("no_long_waits")
async def test_the_last_target_leaves_when_the_last_ingress_has_left() -> None:
    """A redeploy stops it while its successor belongs to another coordinator, and the ingress may
    bring requests for some seconds more."""
    async with served(PLAIN) as (parts, client):
        asked = request(num_tokens=150)
        tokens: list[int] = []
        draining: list[asyncio.Task[None]] = []
        async for event in client.generate(asked):
            if not draining:
                draining.append(asyncio.create_task(parts.loops["t0"].drain(30)))
            tokens += event.token_ids
        assert tokens == expected(asked)
        assert await collect(client, request("late")) == expected(request("late"))
        assert not draining[0].done()
        await parts.cancel("client")
        await draining[0]
        assert not parts.replicas["t0"].cached


async def test_the_last_target_waits_for_an_ingress_that_stays_for_so_long_at_most() -> None:
    """As in a redeploy that keeps the settings and has no room for another target."""
    async with served(PLAIN) as (parts, client):
        await until(lambda: client.has_targets and parts.loops["t0"].is_registered)
        await parts.loops["t0"].drain(0.1)
        await parts.cancel("t0")  # as in its process
        await until(lambda: not parts.driver.replicas)


@pytest.mark.usefixtures("no_long_waits")
async def test_the_last_target_stays_longer_while_its_successor_loads() -> None:
    loads = [True]

    async def is_awaited() -> bool:
        return loads[0]

    async with served(PLAIN) as (parts, client):
        await until(lambda: client.has_targets and parts.loops["t0"].is_registered)
        draining = asyncio.create_task(parts.loops["t0"].drain(0.1, is_awaited))
        asked = request(num_tokens=40)
        await asyncio.sleep(0.3)
        tokens = [t async for event in client.generate(asked) for t in event.token_ids]
        assert tokens == expected(asked)
        assert not draining.done()
        loads[0] = False
        await asyncio.wait_for(draining, 20)


async def test_who_has_lost_its_coordinator_does_not_stay_longer() -> None:
    async def is_awaited() -> bool:
        return True

    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET)
        await parts.client()
        await until(lambda: parts.loops["t0"].is_registered)
        await parts.kill_coordinator()
        await until(lambda: not parts.loops["t0"].is_registered)
        await asyncio.wait_for(parts.loops["t0"].drain(0.1, is_awaited), 20)


@pytest.mark.usefixtures("no_long_waits")
async def test_a_leaving_replica_asks_the_next_coordinator_too() -> None:
    """Its request to leave has died with the one before. The next one hears when that was."""

    def first_asked_s(parts: Cell) -> float:
        return min(asked.asked_s for asked in parts.driver._drains.asked.values())

    async with served(PLAIN) as (parts, client):
        await until(lambda: client.has_targets and parts.loops["t0"].is_registered)
        draining = asyncio.create_task(parts.loops["t0"].drain(30))
        await until(lambda: bool(parts.driver._drains.asked))
        before_s = first_asked_s(parts)
        await asyncio.sleep(0.5)
        await parts.kill_coordinator()
        await parts.start_coordinator()
        await until(lambda: bool(parts.driver._drains.asked))
        assert first_asked_s(parts) == pytest.approx(before_s, abs=0.25)
        parts.start_replica("t1", Role.TARGET)
        await asyncio.wait_for(draining, 20)


@pytest.mark.usefixtures("no_long_waits")
async def test_who_is_asked_to_leave_without_a_coordinator_serves_what_the_next_one_brings() -> (
    None
):
    async with served(PLAIN) as (parts, client):
        asked = request(num_tokens=200)
        events = client.generate(asked)
        tokens = list((await anext(events)).token_ids)
        await parts.kill_coordinator()
        await until(lambda: not parts.loops["t0"].is_registered)
        draining = asyncio.create_task(parts.loops["t0"].drain(30))
        await asyncio.sleep(0.1)
        assert not draining.done()
        await parts.start_coordinator()
        async for event in events:
            tokens += event.token_ids
        assert tokens == expected(asked)
        assert not draining.done()
        await parts.cancel("client")
        await asyncio.wait_for(draining, 20)


@pytest.mark.usefixtures("no_long_waits")
async def test_who_is_asked_to_leave_before_its_first_stream_serves_who_waits_for_it() -> None:
    async with cell(PLAIN) as parts:
        client = await parts.client()
        asked = request()
        answer = asyncio.create_task(collect(client, asked))
        await asyncio.sleep(0.05)
        parts.start_replica("t0", Role.TARGET)
        draining = asyncio.create_task(parts.loops["t0"].drain(30))
        assert await asyncio.wait_for(answer, 20) == expected(asked)
        await parts.cancel("client")
        await asyncio.wait_for(draining, 20)


async def test_who_never_registered_leaves_at_once() -> None:
    async with cell(PLAIN) as parts:
        await parts.kill_coordinator()
        parts.start_replica("t0", Role.TARGET)
        await asyncio.wait_for(parts.loops["t0"].drain(30), 1)


async def test_the_last_target_leaves_when_another_one_comes_and_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "HEARTBEAT_S", 0.01)
    async with served(PLAIN) as (parts, client):
        events = client.generate(request(num_tokens=200))
        tokens = list((await anext(events)).token_ids)
        draining = asyncio.create_task(parts.loops["t0"].drain(30))
        parts.start_replica("t1", Role.TARGET)
        await draining
        async for event in events:
            tokens += event.token_ids
        assert tokens == expected(request(num_tokens=200))
        assert parts.replicas["t1"].num_leases > 0


async def test_a_closed_ingress_aborts_its_requests() -> None:
    async with cell(PLAIN) as parts:
        client = await parts.client()
        await until(lambda: client.state is not None)
        waiting = asyncio.create_task(collect(client, request()))
        await until(lambda: parts.driver.scheduler.counters().num_waiting == 1)
        await parts.cancel("client")
        await until(lambda: parts.driver.scheduler.counters().num_waiting == 0)
        waiting.cancel()


async def test_a_replica_with_another_vocabulary_is_refused() -> None:
    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET)
        await until(lambda: len(parts.driver.replicas) == 1)
        parts.start_replica("d0", Role.DRAFT, _OtherVocabulary(Role.DRAFT))
        await asyncio.sleep(0.3)
        assert list(parts.driver.replicas) == ["t0"]


class _OtherVocabulary(FakeReplica):
    def info(self, replica_id: str, incarnation: int) -> Any:
        return replace(super().info(replica_id, incarnation), vocab_size=7)


async def test_without_the_token_nobody_is_heard() -> None:
    async with cell(PLAIN) as parts:
        assert parts.endpoint is not None
        parts.endpoint = replace(parts.endpoint, token="guessed")
        parts.start_replica("t0", Role.TARGET)
        client = await parts.client()
        await asyncio.sleep(0.3)
        assert (parts.driver.num_streams, client.state) == (0, None)


@pytest.mark.parametrize("num_turns", range(5))
async def test_a_driver_that_is_ended_as_news_comes_has_ended(
    num_turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns of the loop between the news and the end."""
    monkeypatch.setattr(Scheduler, "next_deadline", lambda pool: time.monotonic() + 60)
    driver = SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1)
    running = asyncio.create_task(driver.run())
    await asyncio.sleep(0.01)
    driver.abort(driver.attach(), "nobody")
    for _ in range(num_turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=1)
    assert running.done()
