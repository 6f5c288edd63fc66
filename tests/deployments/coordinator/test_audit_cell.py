"""The audit and the fingerprints in a whole cell: coordinator, replicas and ingress over gRPC."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from deployments.coordinator.status import pool_status
from deployments.errors import PoolUnavailableError
from deployments.wire import liveness as silence
from specdec_core.config import (
    KPolicyName,
    Numerics,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.messages import LeaseRow, Role, RowResult
from specdec_core.request import FinishReason
from tests.deployments.cell import Cell, cell, served
from tests.deployments.coordinator.test_cell import collect, expected, request, until
from tests.deployments.fake_replica import VOCAB_SIZE, FakeReplica, continuation

DRAFTING = SchedulerConfig(
    speculation=SpeculationConfig(method=SpecMethod.DRAFT_MODEL, k_policy=KPolicyName.FIXED)
)


def exact(fingerprint: str = "here") -> FakeReplica:
    return FakeReplica(Role.TARGET, numerics=Numerics.EXACT, fingerprint=fingerprint)


class Liar(FakeReplica):
    """Chooses one wrong token, once, behind the first `lie_behind` ids."""

    lie_behind = 20
    has_lied = False

    def _verify(self, row: LeaseRow, ids: list[int]) -> RowResult:
        answer = super()._verify(row, ids)
        is_due = row.end_len + answer.num_accepted >= self.lie_behind and answer.tokens
        if self.has_lied or not is_due:
            return answer
        self.has_lied = True
        *accepted, chosen = answer.tokens
        lie = (chosen + 1) % VOCAB_SIZE
        return RowResult(
            sequence_id=row.sequence_id,
            cached_len=answer.cached_len,
            tokens=(*accepted, lie),
            num_accepted=answer.num_accepted,
        )


async def audited(parts: Cell) -> Any:
    """The status once every sampled request has been compared."""
    await until(lambda: parts.driver.auditor.num_pending == 0)
    return pool_status(parts.driver)


@pytest.mark.parametrize("config", [DRAFTING, SchedulerConfig()])
async def test_finished_requests_are_replayed_and_count_as_no_request(
    config: SchedulerConfig,
) -> None:
    async with served(config, audit_share=1.0, target=exact(), has_draft=True) as (parts, client):
        asked = [request(f"r{i}", 5 + 3 * i) for i in range(12)]
        answers = await asyncio.gather(*(collect(client, one) for one in asked))
        assert answers == [expected(one) for one in asked]
        status = await audited(parts)
        assert (status.audit.num_audited, status.audit.num_diverged) == (12, 0)
        assert status.audit.num_skipped == 0
        assert status.counters["num_finished_length"] == 12
        assert status.counters["num_committed"] == sum(len(answer) for answer in answers)
        await until(lambda: parts.replicas["t0"].num_slots == 0)


async def test_nothing_is_replayed_without_a_share() -> None:
    async with cell(audit_share=0.0) as parts:
        parts.start_replica("t0", Role.TARGET, exact())
        await collect(await parts.client(), request())
        status = await audited(parts)
        assert (status.audit.num_audited, status.audit.num_skipped) == (0, 0)


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FAST])
async def test_a_target_that_lies_once_is_found_out(
    numerics: Numerics, caplog: pytest.LogCaptureFixture
) -> None:
    async with cell(DRAFTING, audit_share=1.0) as parts:
        liar = Liar(Role.TARGET, numerics=numerics, fingerprint="made up")
        parts.start_replica("t0", Role.TARGET, liar)
        parts.start_replica("d0", Role.DRAFT)
        asked = request("betrayed", 30)
        answer = await collect(await parts.client(), asked)
        truth = expected(asked)
        index = next(i for i, (a, b) in enumerate(zip(answer, truth, strict=True)) if a != b)
        status = await audited(parts)
        assert (status.audit.num_audited, status.audit.num_diverged) == (1, 1)
        assert parts.driver.auditor.counts.diverged == {numerics: 1}
        (record,) = [r for r in caplog.records if "diverges" in r.message]
        found = f"token {index}: emitted {answer[index]}, replayed {truth[index]}"
        for part in ("betrayed", found, numerics.value, "made up"):
            assert part in record.message
        is_fault = numerics is Numerics.EXACT
        assert record.levelno == (logging.ERROR if is_fault else logging.WARNING)
        await until(lambda: parts.replicas["t0"].num_slots == 0)


async def test_an_aborted_request_is_compared_as_far_as_it_came() -> None:
    async with served(audit_share=1.0, target=exact()) as (parts, client):
        events = client.generate(request(num_tokens=200))
        await anext(events)
        assert await client.abort("a")
        reasons = [event.finish_reason async for event in events]
        assert reasons[-1] is FinishReason.ABORT
        status = await audited(parts)
        assert (status.audit.num_audited, status.audit.num_diverged) == (1, 0)
        await asyncio.sleep(0.05)
        num_leases = parts.replicas["t0"].num_leases
        await asyncio.sleep(0.1)
        assert parts.replicas["t0"].num_leases == num_leases, "the replay goes on"
        assert not await client.abort("a")
        assert await collect(client, request(num_tokens=9)) == expected(request(num_tokens=9))


async def test_what_was_noted_of_a_client_that_left_is_forgotten() -> None:
    async with served(audit_share=1.0, target=exact()) as (parts, client):
        events = client.generate(request(num_tokens=200))
        await anext(events)
        assert parts.driver.auditor._watched
        await parts.cancel("client")
        await until(lambda: not parts.driver.auditor._watched)
        assert parts.driver.auditor.num_pending == 0


async def test_a_leaving_replica_takes_the_replays_with_it_and_no_request() -> None:
    async with served(audit_share=1.0, target=exact()) as (parts, client):
        for i in range(3):
            await collect(client, request(f"r{i}", 200))
        assert parts.driver.auditor.num_pending > 0
        running = asyncio.create_task(collect(client, request("late", 200)))
        await until(lambda: parts.driver.scheduler.counters().num_running == 1)
        parts.start_replica("t1", Role.TARGET, exact())
        await until(lambda: len(parts.driver.replicas) == 2)
        await parts.loops["t0"].drain(5)
        assert parts.driver.auditor.num_pending <= 1  # the late one, if it has ended
        assert parts.driver.auditor.counts.num_skipped > 0
        assert await running == expected(request("late", 200))
        status = await audited(parts)
        assert status.audit.num_diverged == 0


async def test_while_a_replica_leaves_no_replay_begins_that_could_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "HEARTBEAT_S", 0.05)
    async with served(audit_share=1.0, target=exact()) as (parts, client):
        await collect(client, request("first", 9))
        await audited(parts)
        leaving = asyncio.create_task(parts.loops["t0"].drain(30))
        await until(lambda: bool(parts.driver._drains.asked))
        assert await collect(client, request("late", 9)) == expected(request("late", 9))
        await asyncio.sleep(0.1)
        assert parts.driver.auditor.num_pending == 1
        assert parts.driver.auditor.counts.audited.total() == 1
        parts.start_replica("t1", Role.TARGET, exact())
        await leaving
        status = await audited(parts)
        assert (status.audit.num_audited, status.audit.num_diverged) == (2, 0)


async def test_replays_survive_the_death_of_their_target() -> None:
    async with served(audit_share=1.0, target=exact()) as (parts, client):
        await collect(client, request("a", 200))
        assert parts.driver.auditor.num_pending == 1
        await parts.cancel("t0")
        parts.start_replica("t1", Role.TARGET, exact())
        status = await audited(parts)
        assert (status.audit.num_audited, status.audit.num_diverged) == (1, 0)


async def test_an_unequal_target_waits_outside_until_the_others_have_left() -> None:
    async with cell() as parts:
        parts.start_replica("t0", Role.TARGET, exact())
        await until(lambda: "t0" in parts.driver.replicas)
        parts.start_replica("t1", Role.TARGET, exact("elsewhere"))
        await asyncio.sleep(0.3)
        assert list(parts.driver.replicas) == ["t0"]
        await parts.cancel("t0")
        await until(lambda: list(parts.driver.replicas) == ["t1"])


@pytest.mark.parametrize("dies", ["target", "coordinator and target"])
async def test_what_only_unequal_targets_could_go_on_with_is_worth_a_retry(dies: str) -> None:
    async with served(audit_share=1.0, target=exact()) as (parts, client):
        events = client.generate(request(num_tokens=200))
        first = await anext(events)
        assert first.token_ids
        if dies == "coordinator and target":
            await parts.kill_coordinator()
        await parts.cancel("t0")
        if parts.endpoint is None:
            await parts.start_coordinator()
        parts.start_replica("t1", Role.TARGET, exact("elsewhere"))
        with pytest.raises(PoolUnavailableError, match=r"elsewhere.*try again"):
            async for _ in events:
                pass
        answer = await collect(client, request("b", 9))
        assert answer == continuation(request("b").prompt_token_ids, 9)
