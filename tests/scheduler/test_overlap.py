"""Halves are drafted and verified at the same time where that is faster, and nowhere else.

The oracle is the pool itself, made to split always and never, in worlds whose costs are known.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specdec_core.config import (
    KPolicyName,
    OverlapMode,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.messages import GroupLease, LeaseRow, Role
from specdec_core.scheduler.pipelining import Pipelining
from tests.scheduler.modelled.world import Costs, World

K = 4
MAX_LIVE = 128
MAX_TOKENS = 40


def world(overlap: OverlapMode, costs: Costs, max_group_size: int = MAX_LIVE) -> World:
    speculation = SpeculationConfig(
        method=SpecMethod.DRAFT_MODEL, num_draft_tokens=K, k_policy=KPolicyName.FIXED
    )
    config = SchedulerConfig(
        max_group_size=max_group_size, window=MAX_LIVE, overlap=overlap, speculation=speculation
    )
    return World(config, costs, acceptance=0.7)


def by_row(base_ms: float, row_ms: float) -> Callable[[int, int], float]:
    return lambda num_sequences, num_rows: (base_ms + row_ms * num_rows) / 1000


def step(base_ms: float, row_ms: float) -> Callable[[int], float]:
    return lambda num_sequences: (base_ms + row_ms * num_sequences) / 1000


MACHINES = {
    "both flat": Costs(by_row(20.0, 0.0), step(4.0, 0.0)),
    "in between": Costs(by_row(15.0, 0.1), step(3.0, 0.05), noise=0.1),
    "a small draft": Costs(by_row(15.0, 0.3), step(0.4, 0.005), noise=0.1),
    "both by the row": Costs(by_row(0.5, 0.4), step(0.1, 0.5)),
    "flat passes, drafts by the row": Costs(by_row(20.0, 0.0), step(0.2, 0.4)),
    "passes by the row, flat drafts": Costs(by_row(0.5, 0.4), step(4.0, 0.0)),
    "one thread": Costs(by_row(0.5, 0.4), step(0.1, 0.5), has_one_thread=True),
}


def tokens_per_second(overlap: OverlapMode, costs: Costs, num_live: int) -> float:
    modelled = world(overlap, costs)
    modelled.run(num_live, MAX_TOKENS, 2 * num_live)
    num_turns = 4 if num_live < 30 else 2
    return modelled.run(num_live, MAX_TOKENS, num_turns * num_live).tokens_per_second


@pytest.mark.covering(1)
@pytest.mark.parametrize("num_live", [32, 17, 8, 3, 2, 1, 4])
@pytest.mark.parametrize("machine", MACHINES)
def test_it_is_near_the_better_of_always_and_never(machine: str, num_live: int) -> None:
    check_that_it_is_near_the_better(machine, num_live)


@pytest.mark.nightly
@pytest.mark.parametrize("machine", MACHINES)
def test_with_full_groups_too(machine: str) -> None:
    check_that_it_is_near_the_better(machine, MAX_LIVE)


def check_that_it_is_near_the_better(machine: str, num_live: int) -> None:
    """Of always and never."""
    reached, *fixed = (tokens_per_second(mode, MACHINES[machine], num_live) for mode in OverlapMode)
    assert reached >= 0.97 * max(fixed)


def test_splitting_pays_where_halves_cost_half_and_loses_where_they_do_not() -> None:
    """Otherwise the worlds above would say nothing."""
    for machine, least, most in (("both by the row", 1.7, 2.0), ("both flat", 0.8, 0.95)):
        always, never = (
            tokens_per_second(mode, MACHINES[machine], 16)
            for mode in (OverlapMode.ALWAYS, OverlapMode.NEVER)
        )
        assert least < always / never < most


def test_groups_of_a_split_target_are_halves() -> None:
    modelled = world(OverlapMode.ALWAYS, MACHINES["both by the row"])
    modelled.run(9, MAX_TOKENS)
    counters = modelled.pool.counters()
    assert counters.num_split_groups > 0.8 * counters.num_groups
    sizes = [size for size, count in enumerate(counters.group_sizes) if count > 2]
    assert max(sizes) == 5


def test_nothing_is_split_without_a_draft_model() -> None:
    config = SchedulerConfig(
        overlap=OverlapMode.ALWAYS,
        speculation=SpeculationConfig(method=SpecMethod.NGRAM, k_policy=KPolicyName.FIXED),
    )
    modelled = World(config, MACHINES["both by the row"], acceptance=0.7)
    modelled.run(8, MAX_TOKENS)
    assert modelled.pool.counters().num_split_groups == 0


def lease(role: Role, num_rows: int) -> GroupLease:
    rows = tuple(
        LeaseRow(
            sequence_id=number,
            base_len=9,
            base_hash=0,
            new_ids=(1,),
            proposal=(1,) * K if role is Role.TARGET else (),
            num_choices=K + 1 if role is Role.TARGET else K,
        )
        for number in range(num_rows)
    )
    return GroupLease(lease_id=0, epoch=0, replica_id="r", role=role, rows=rows, ttl_s=1.0)


def of_costs_by_the_row() -> Pipelining:
    overlap = Pipelining(SchedulerConfig(max_group_size=8))
    for number in range(40):
        num_rows, is_split = (8, False) if number < 20 else (4, True)
        for role in Role:
            overlap.observe(lease(role, num_rows), 0.001 * num_rows, is_split)
    assert overlap.max_rows(8, 1, 1) == 4
    return overlap


def test_a_draft_that_serves_several_targets_has_work_meanwhile() -> None:
    overlap = of_costs_by_the_row()
    assert overlap.max_rows(8, 2, 1) is None
    assert overlap.max_rows(8, 2, 2) == 4


def test_a_draft_model_that_rests_leaves_its_targets_whole() -> None:
    overlap = of_costs_by_the_row()
    for _ in range(5):
        overlap.observe(lease(Role.TARGET, 8), 0.008, False)
    assert overlap.max_rows(8, 1, 1) is None


def test_full_groups_of_a_wide_window_alternate_anyway() -> None:
    assert of_costs_by_the_row().max_rows(16, 1, 1) is None


def test_nothing_is_tried_before_costs_are_known_or_where_it_cannot_pay() -> None:
    overlap = Pipelining(SchedulerConfig(max_group_size=8))
    assert overlap.max_rows(8, 1, 1) is None
    for _ in range(40):
        overlap.observe(lease(Role.DRAFT, 8), 0.0001, False)
        overlap.observe(lease(Role.TARGET, 8), 0.1, False)
        assert overlap.max_rows(8, 1, 1) is None
