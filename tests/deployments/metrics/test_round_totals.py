"""What the coordinator counts of leases, of K and of replays, over a whole cell."""

from __future__ import annotations

from functools import partial

import pytest

from deployments.coordinator.status import pool_status
from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import metrics_page
from deployments.wire.counter_names import K_CAUSE
from deployments.wire.request_codec import write_event
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from specdec_core.request import TokenEvent
from specdec_core.scheduler import DraftLengthReason
from tests.deployments.cell import Cell, cell, served
from tests.deployments.coordinator.test_cell import collect, expected, request, until
from tests.deployments.metrics.test_registry import Series, series, value

DRAFTING = SchedulerConfig(
    speculation=SpeculationConfig(method=SpecMethod.DRAFT_MODEL, k_policy=KPolicyName.FIXED)
)


def page(parts: Cell) -> Series:
    return series(metrics_page(pool_status(parts.driver), "m", MetricsCompat.NONE))


def leases(parts: Cell, fate: str, role: Role) -> float:
    return value(page(parts), f"specdec_leases_{fate}_total", role=role)


def are_settled(parts: Cell, role: Role) -> bool:
    return leases(parts, "granted", role) == leases(parts, "answered", role)


@pytest.mark.parametrize("config", [DRAFTING, SchedulerConfig()])
async def test_every_lease_is_answered_by_whom_it_was_granted_to(config: SchedulerConfig) -> None:
    async with served(config, has_draft=True) as (parts, client):
        await collect(client, request("r"))
        for role in Role:
            await until(partial(are_settled, parts, role))
            assert leases(parts, "expired", role) == 0
        assert leases(parts, "granted", Role.TARGET) > 0


async def test_every_round_has_one_cause_of_its_k() -> None:
    async with served(DRAFTING, has_draft=True) as (parts, client):
        await collect(client, request("r"))
        found, status = page(parts), pool_status(parts.driver)
        told = {
            one: value(found, "specdec_k_decisions_total", cause=one.label)
            for one in DraftLengthReason
        }
        assert sum(told.values()) == status.counters["num_sequence_rounds"] > 0
        assert told[DraftLengthReason.CONFIGURED] > 0
        ends = {name.removeprefix(K_CAUSE) for name in status.counters if K_CAUSE in name}
        assert ends == {one.label for one in DraftLengthReason}


async def test_a_replay_that_came_to_other_tokens_is_counted_at_the_coordinator() -> None:
    async with cell(SchedulerConfig()) as parts:
        parts.start_replica("t0", Role.TARGET)
        client, asked, tokens = await parts.client(), request("r"), []
        async for event in client.generate(asked):
            if not tokens:
                lie = TokenEvent("r", 0, (expected(asked)[0] + 1,))
                down = pb.GenerateDown()
                write_event(down.events.add(), lie, None)
                client._take_in(down)
            tokens += event.token_ids
        assert tokens == expected(asked)
        counted = "specdec_replay_divergences_total"
        await until(lambda: value(page(parts), counted) == 1)


async def test_the_acceptance_of_a_source_keeps_its_label() -> None:
    """Dashboards know prompt lookup and draft models by these."""
    speculation = SpeculationConfig(method=SpecMethod.NGRAM)
    async with served(SchedulerConfig(speculation=speculation)) as (parts, client):
        await collect(client, request("r"))
        await until(partial(are_settled, parts, Role.TARGET))
        for figure in ("acceptance_lookup", "acceptance_model"):
            assert 0 < value(page(parts), "specdec_k_policy", figure=figure) < 1
