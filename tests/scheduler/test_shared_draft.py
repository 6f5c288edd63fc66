"""Targets that share a draft: with the controller they are never slower than without the draft.

The oracle is the pool itself, without drafting and with every fixed K, in worlds whose costs are
known.
"""

from __future__ import annotations

from functools import cache

import pytest

from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from specdec_core.scheduler import FixedPolicy, SendLease
from specdec_core.speculation.draft_load import DraftLoad
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.modelled.world import Costs, World

K = 4
PASS_S, ROW_S = 0.025, 0.00005
GROUP_SIZE = 8
MAX_TOKENS = 40
FEW, MANY = 4, 32
"""Live sequences."""


def speed(speculation: SpeculationConfig, ratio: float, acceptance: float, num_live: int) -> float:
    """Tokens per second of three targets; a draft step takes `ratio` of a pass."""
    pool = SchedulerConfig(
        max_group_size=GROUP_SIZE,
        window=3 * GROUP_SIZE,
        max_open_leases=2,
        speculation=speculation,
    )
    costs = Costs(lambda _, rows: PASS_S + ROW_S * rows, lambda _: ratio * PASS_S)
    world = World(pool, costs, acceptance, num_targets=3)
    world.run(num_live, MAX_TOKENS, num_live if num_live == MANY else 4 * num_live)
    return world.run(num_live, MAX_TOKENS, 2 * num_live).tokens_per_second


@cache
def plain_speed(num_live: int) -> float:
    return speed(SpeculationConfig(method=SpecMethod.NONE), 0.0, 0.0, num_live)


def reached_speed(ratio: float, acceptance: float, num_live: int) -> float:
    method, policy = SpecMethod.DRAFT_MODEL, KPolicyName.GOODPUT
    speculation = SpeculationConfig(method=method, num_draft_tokens=K, k_policy=policy)
    return speed(speculation, ratio, acceptance, num_live)


@pytest.mark.covering(1)
@pytest.mark.parametrize("num_live", [FEW, MANY])
@pytest.mark.parametrize("acceptance", [0.5, 0.9])
@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.4])
def test_a_slow_draft_never_makes_its_targets_slower(
    ratio: float, acceptance: float, num_live: int
) -> None:
    assert reached_speed(ratio, acceptance, num_live) >= 0.97 * plain_speed(num_live)


@pytest.mark.parametrize(
    ("ratio", "acceptance"), [(0.2, 0.7), pytest.param(0.4, 0.9, marks=pytest.mark.nightly)]
)
def test_under_load_it_is_near_the_best_fixed_k(ratio: float, acceptance: float) -> None:
    fixed = [
        speed(
            SpeculationConfig(
                method=SpecMethod.DRAFT_MODEL, num_draft_tokens=k, k_policy=KPolicyName.FIXED
            ),
            ratio,
            acceptance,
            MANY,
        )
        for k in (1, 2, K)
    ]
    assert reached_speed(ratio, acceptance, MANY) >= 0.97 * max(fixed)


class Short(FixedPolicy):
    """As if drafts never had time enough."""

    @property
    def is_draft_short(self) -> bool:
        return True


def num_finished(policy: FixedPolicy) -> int:
    """Of six sequences."""
    cell = beside_a_stuck_draft(policy)
    for client in cell.clients.values():
        client.check_plain()
    return sum(client.last is not None for client in cell.clients.values())


def beside_a_stuck_draft(policy: FixedPolicy) -> Cell:
    """Six sequences in groups of two, while the draft never answers what it shall propose."""
    limits = config(SpecMethod.DRAFT_MODEL, 2, max_group_size=2, window=6, lease_ttl_s=1e6)
    cell = Cell(limits, policy)
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    for i in range(6):
        cell.add(request(str(i), max_tokens=30, seed=i))
    for _ in range(300):
        cell.now += 0.1
        cell.advance()
        for replica_id, link in cell.links.items():
            while link.inbox and not _asks(link.inbox[0]):
                cell.handle(replica_id)
            while link.results:
                cell.deliver(replica_id)
    return cell


def _asks(message: object) -> bool:
    is_lease = isinstance(message, SendLease) and message.lease.role is Role.DRAFT
    return is_lease and any(row.num_choices for row in message.lease.rows)


def test_rows_that_a_draft_has_no_time_for_are_verified_without_it() -> None:
    """Two are with the draft, and the two that it would take next are left to it."""
    assert num_finished(Short(2)) == 2
    assert num_finished(FixedPolicy(2)) == 0


def test_a_draft_with_one_target_costs_a_round_all_its_time() -> None:
    """They may take turns on one device."""
    for num_live in (1, 8, 24):
        crowd = DraftLoad(num_live, GROUP_SIZE, targets_per_draft=1.0)
        assert crowd.exposed_s(0.4, 1.0) == 0.4
        assert crowd.drafted_share(0.4, 1.4, 1.0) == 1.0


def test_drafting_hides_behind_the_passes_of_a_targets_other_groups() -> None:
    alone, several = (DraftLoad(n, GROUP_SIZE, targets_per_draft=2.0) for n in (8, 24))
    assert alone.exposed_s(2.0, 1.0) > 2.0, "the other target's group may be in the way"
    assert several.exposed_s(0.4, 1.0) == 0.0


@pytest.mark.parametrize(("drafting_s", "share"), [(0.2, 1.0), (0.5, 0.5), (1.0, 0.25)])
def test_a_draft_serves_no_more_rounds_than_it_has_time_for(
    drafting_s: float, share: float
) -> None:
    """Four targets whose rounds take a second, drafted or not: so much of each is the draft's."""
    crowd = DraftLoad(24, GROUP_SIZE, targets_per_draft=4.0)
    assert crowd.drafted_share(drafting_s, 1.0, 1.0) == pytest.approx(share)


def test_groups_that_are_not_full_share_the_time_of_a_draft() -> None:
    full, half = (DraftLoad(n, GROUP_SIZE, targets_per_draft=4.0) for n in (8, 4))
    assert full.drafted_share(0.5, 1.0, 1.0) == pytest.approx(0.5)
    assert half.drafted_share(0.5, 1.0, 1.0) == 1.0
