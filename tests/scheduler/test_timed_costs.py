"""Costs that were timed when a target was loaded: the controller is right from the start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import DRAFT_REPLICA
from specdec_core.step_times import StepTime
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.modelled.world import Costs, World
from tests.scheduler.test_goodput import LOOKUP, offered

K = 4
SIZES = ((1, 1), (1, 5), (4, 4), (8, 8), (16, 16), (32, 32), (8, 40), (64, 64), (32, 160))
NUM_FIRST, NUM_TOKENS = 20, 48
"""Requests after which nothing may be lost any more, and the tokens that each of them emits."""
NUM_LATER_TOKENS = 128
"""Tokens of each request that follows: a batch that ends raggedly loses more of short answers."""


def costs(base_s: float, row_s: float) -> Costs:
    """Passes of longer prefixes than were timed, and a host between them."""
    return Costs(
        verify_s=lambda _, num_rows: 1.1 * (base_s + row_s * num_rows),
        host_s=lambda num_sequences: 0.0004 + 0.00003 * num_sequences,
        noise=0.05,
    )


def timed(base_s: float, row_s: float) -> tuple[StepTime, ...]:
    return tuple(StepTime(n, rows, base_s + row_s * rows) for n, rows in SIZES)


def world(batch: int, acceptance: float, base_s: float, row_s: float, method: SpecMethod) -> World:
    speculation = SpeculationConfig(method=method, num_draft_tokens=K, k_policy=KPolicyName.GOODPUT)
    limits = SchedulerConfig(max_group_size=batch, window=batch, speculation=speculation)
    return World(limits, costs(base_s, row_s), acceptance, step_times=timed(base_s, row_s))


def speeds(batch: int, acceptance: float, base_s: float, row_s: float) -> tuple[float, float]:
    """Tokens per second with prompt lookup over those without: of the first requests, and of as
    many as a service then sees."""
    first, later = [], []
    for method in (SpecMethod.NGRAM, SpecMethod.NONE):
        one = world(batch, acceptance, base_s, row_s, method)
        first.append(one.run(batch, NUM_TOKENS, max(NUM_FIRST, batch)).tokens_per_second)
        later.append(one.run(batch, NUM_LATER_TOKENS, max(NUM_FIRST, 2 * batch)).tokens_per_second)
    return first[0] / first[1], later[0] / later[1]


@pytest.mark.covering(1)
@pytest.mark.parametrize("row_s", [0.00005, 0.0003, 0.002])
@pytest.mark.parametrize("base_s", [0.005, 0.015])
@pytest.mark.parametrize("acceptance", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("batch", [1, 4, 8, 32])
def test_nothing_is_lost_from_the_first_requests_on(
    batch: int, acceptance: float, base_s: float, row_s: float
) -> None:
    first, later = speeds(batch, acceptance, base_s, row_s)
    assert first >= 0.95, "the first requests"
    assert later >= 0.97, "those that follow"


def test_the_gain_is_there_from_the_first_request_on() -> None:
    """Rows cost next to nothing: whoever has to learn it first gives half of it away."""
    first, _ = speeds(1, 0.7, 0.01, 0.0001)
    assert first > 1.5


def first_choice(base_s: float, row_s: float, batch: int) -> int:
    policy = GoodputPolicy(max_group_size=batch)
    policy.welcome(replace(info(), step_times=timed(base_s, row_s)))
    offers = [offered(AcceptanceHistory(), K, num_left=99) for _ in range(batch)]
    return sum(one.k for one in policy.num_checked(offers, 0))


def test_the_first_group_is_chosen_by_what_was_timed() -> None:
    """Where rows are dear, a look at a few of them at most."""
    assert first_choice(0.01, 0.00001, 1) == K
    assert first_choice(0.001, 0.004, 8) <= 8


def test_a_draft_whose_steps_were_timed_is_planned_for_at_once() -> None:
    def asked(step_s: float) -> int:
        policy = GoodputPolicy(max_group_size=8)
        policy.welcome(replace(info(), step_times=timed(0.01, 0.0001)))
        steps = tuple(StepTime(n, n, step_s) for n in (1, 8, 32))
        policy.welcome(replace(info(role=Role.DRAFT), step_times=steps))
        return policy.draft_steps(AcceptanceHistory(), K, 8).k

    assert asked(0.0002) >= 1
    assert asked(0.02) == 0


@pytest.mark.parametrize(("own", "size", "admitted"), [(0, 4, 10), (2, 2, 4), (9, 4, 8)])
def test_a_target_gets_no_more_rows_than_it_has_registered(
    own: int, size: int, admitted: int
) -> None:
    cell = Cell(config(max_group_size=4, window=10))
    cell.join(replace(info(), max_num_seqs=own))
    for number in range(12):
        cell.add(request(str(number), seed=number))
    cell.advance()
    assert len(cell.leases[0].rows) == size
    counted = cell.pool.counters().replicas[0]
    assert (counted.num_sequences, counted.max_group_size) == (admitted, size)


def test_a_found_proposal_is_checked_where_the_draft_model_would_cost_more_than_it_brings() -> None:
    """Who drafts is decided by what is expected of each, and a draft's time counts."""

    def is_lookup_kept(step_s: float, model: float, lookup: float) -> bool:
        policy, history = GoodputPolicy(max_group_size=4), AcceptanceHistory()
        policy.welcome(replace(info(), step_times=timed(0.01, 0.0001)))
        steps = tuple(StepTime(n, n, step_s) for n in (1, 4, 8))
        policy.welcome(replace(info(role=Role.DRAFT), step_times=steps))
        for source, rate in ((DRAFT_REPLICA, model), (LOOKUP, lookup)):
            for place in range(40):
                wrong = int(place % 10 >= 10 * rate)
                policy.learn(history, source, Offer((1,)), (1 - wrong,))
        policy.draft_steps(history, K, 4)
        return policy.draft_steps(history, K, 4, local=offered(history, K)).k == 0

    assert not is_lookup_kept(0.0002, model=0.9, lookup=0.3), "the model brings more"
    assert is_lookup_kept(0.0002, model=0.5, lookup=0.9), "lookup brings more"
    assert is_lookup_kept(0.004, model=0.7, lookup=0.5), "the model takes too long for it"
    assert is_lookup_kept(0.05, model=0.9, lookup=0.1), "the model rests, and lookup is free"
