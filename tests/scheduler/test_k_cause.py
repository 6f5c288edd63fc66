"""What decided K is counted, once for each round that commits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from specdec_core.config import (
    DRAFT_MODEL_METHODS,
    KPolicyName,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.messages import Role
from specdec_core.scheduler import DraftLengthReason, FixedPolicy
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import DRAFT_REPLICA, Terms
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.modelled.world import Costs, World
from tests.scheduler.test_goodput import LOOKUP, Run, offered
from tests.scheduler.test_goodput import World as WorldOfCosts
from tests.scheduler.test_shared_draft import Short, beside_a_stuck_draft

LOOPING_PROMPT = (1, 2, 3, 1, 2, 3, 1, 2)


class Resting(FixedPolicy):
    """As if prompt lookup had long been in vain."""

    def terms(self, source: str, num_live: int) -> Terms:
        return Terms(0, DraftLengthReason.GOODPUT)


def causes(cell: Cell) -> dict[DraftLengthReason, int]:
    """Those that there were; every round has one."""
    counters = cell.pool.counters()
    found = counters.num_rounds_by_k_cause
    assert sum(found.values()) == counters.num_sequence_rounds
    return {cause: count for cause, count in found.items() if count}


def rounds(
    method: SpecMethod, prompt: tuple[int, ...] = (1, 2, 3), max_tokens: int = 4, **asked: Any
) -> dict[DraftLengthReason, int]:
    """Of one request, whose drafts are all wrong."""
    cell = Cell(config(method, 3))
    cell.join(info("target"))
    if method in DRAFT_MODEL_METHODS:
        cell.join(info("draft", Role.DRAFT), agreement=0)
    cell.add(request("a", prompt, max_tokens, **asked))
    cell.run()
    return causes(cell)


def test_where_nothing_is_drafted_the_configuration_is_why() -> None:
    assert rounds(SpecMethod.NONE) == {DraftLengthReason.OFF: 4}


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.HYBRID])
def test_a_request_that_switches_drafting_off_is_why(method: SpecMethod) -> None:
    assert rounds(method, LOOPING_PROMPT, speculation_enabled=False) == {
        DraftLengthReason.REQUEST: 4
    }


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL])
def test_a_request_that_asks_for_no_draft_tokens_is_why(method: SpecMethod) -> None:
    assert rounds(method, LOOPING_PROMPT, num_draft_tokens=0) == {DraftLengthReason.REQUEST: 4}


def test_a_request_s_own_limit_is_no_cause() -> None:
    """The policy still decides below the limit."""
    found = rounds(SpecMethod.DRAFT_MODEL, num_draft_tokens=1)
    assert found == {
        DraftLengthReason.NO_DRAFT: 1,
        DraftLengthReason.CONFIGURED: 2,
        DraftLengthReason.ENDING: 1,
    }


def test_the_first_token_and_the_last_have_causes_of_their_own() -> None:
    found = rounds(SpecMethod.DRAFT_MODEL)
    assert found == {
        DraftLengthReason.NO_DRAFT: 1,
        DraftLengthReason.CONFIGURED: 2,
        DraftLengthReason.ENDING: 1,
    }


def test_lookup_that_finds_nothing_is_why() -> None:
    assert rounds(SpecMethod.NGRAM, (1, 2, 3), 1) == {DraftLengthReason.ENDING: 1}
    assert rounds(SpecMethod.NGRAM, (1, 2, 3), 2)[DraftLengthReason.NOTHING_FOUND] == 1


@pytest.mark.parametrize("size", [5, 16])
def test_lookup_in_vain_rests_and_comes_back(size: int) -> None:
    """Four passes without it, then one with it; groups that are smaller do not wait for that."""
    policy = GoodputPolicy(max_group_size=64)
    run = Run(WorldOfCosts((0.05,) * size, 10.0, 1.0), policy)
    plain = Run(replace(run.world, found=0.0), policy)
    histories = run.new_histories()
    for _ in range(60):
        if policy.terms(LOOKUP, size).k:
            run._round(histories)
    assert not policy.terms(LOOKUP, size).k
    assert not policy.terms(LOOKUP, 99).k
    assert policy.terms(LOOKUP, size - 1).k
    passes = 0
    while passes < 60 and not policy.terms(LOOKUP, size).k:
        plain._round(histories)
        passes += 1
    assert passes == 4
    run._round(histories)
    assert not policy.terms(LOOKUP, size).k


def test_lookup_never_rests_for_a_few() -> None:
    """Whose rounds it takes next to nothing of, and whose loops begin at any time."""
    policy = GoodputPolicy(max_group_size=64)
    run = Run(WorldOfCosts((0.05,) * 4, 10.0, 1.0), policy)
    histories = run.new_histories()
    for _ in range(60):
        run._round(histories)
        assert policy.terms(LOOKUP, 4).k


@pytest.mark.parametrize("source", [LOOKUP, DRAFT_REPLICA])
def test_only_lookups_in_vain_let_lookup_rest(source: str) -> None:
    """A draft model's tokens that are not worth a row say nothing of it."""
    policy = GoodputPolicy(max_group_size=64)
    for rows, seconds in ((16, 0.02), (32, 0.05)) * 9:
        policy.verify.observe(16, rows, seconds)
    histories = [AcceptanceHistory() for _ in range(16)]
    for history in histories:
        policy.learn(history, source, Offer((1,) * 9), (0,))
    for _ in range(20):
        policy.num_checked([offered(history, 2, source) for history in histories], 0)
    assert (policy.terms(LOOKUP, 16).k > 0) is (source == DRAFT_REPLICA)


def test_while_lookup_rests_the_policy_is_why() -> None:
    cell = Cell(config(SpecMethod.NGRAM, 3), Resting(3))
    cell.join(info())
    cell.add(request("a", LOOPING_PROMPT, 4))
    cell.run()
    assert causes(cell) == {DraftLengthReason.GOODPUT: 3, DraftLengthReason.ENDING: 1}


def test_the_verification_budget_is_why_tokens_are_left_out() -> None:
    cell = Cell(config(SpecMethod.NGRAM, max_group_size=2, verification_budget=5))
    cell.join(info())
    for i in range(2):
        cell.add(request(str(i), LOOPING_PROMPT, seed=i))
    cell.turn()
    assert causes(cell) == {DraftLengthReason.BUDGET: 2}


def test_a_target_without_blocks_for_a_proposal_is_why() -> None:
    """Row "a" could draft four tokens: its blocks have room for one, and "b" holds the third."""
    cell = Cell(config(SpecMethod.NGRAM, 8))
    cell.join(info(num_blocks=3, block_size=4))
    cell.add(request("a", (1, 2, 1, 2, 1, 2, 1), max_tokens=5))
    cell.add(request("b", (1, 2), max_tokens=1))
    cell.turn()
    assert causes(cell) == {DraftLengthReason.ROOM: 1, DraftLengthReason.ENDING: 1}


def test_a_round_that_a_short_draft_lets_go_says_so() -> None:
    """Six first tokens, two last ones, and between them all that the draft does not answer."""
    found = causes(beside_a_stuck_draft(Short(2)))
    assert found.pop(DraftLengthReason.QUEUE) >= 2 * 28
    assert found == {DraftLengthReason.NO_DRAFT: 6, DraftLengthReason.ENDING: 2}
    assert DraftLengthReason.QUEUE not in causes(beside_a_stuck_draft(FixedPolicy(2)))


def test_the_controller_tells_what_it_does_to_learn() -> None:
    """Often at first, and then in one group of ten at most: passes earn the time for it."""
    policy = GoodputPolicy(max_group_size=8)
    run = Run(WorldOfCosts((0.5,) * 8, 10.0, 0.5), policy)
    histories, told = run.new_histories(), []
    for _ in range(300):
        run._round(histories)
        told.append(run.reason)
    assert 2 <= told[:20].count(DraftLengthReason.PROBE) <= 12
    assert told[100:].count(DraftLengthReason.PROBE) <= 200 // 10
    assert set(told) == {DraftLengthReason.PROBE, DraftLengthReason.GOODPUT}


def test_rounds_of_the_controller_are_counted_as_it_told_them() -> None:
    speculation = SpeculationConfig(method=SpecMethod.NGRAM, k_policy=KPolicyName.GOODPUT)
    pool = SchedulerConfig(max_group_size=8, window=8, speculation=speculation)
    world = World(pool, Costs(lambda _, rows: 0.01 + 0.001 * rows), acceptance=0.5)
    world.run(8, 40, 32)
    counters = world.pool.counters()
    found = Counter(counters.num_rounds_by_k_cause)
    assert found.total() == counters.num_sequence_rounds
    assert set(+found) == {
        DraftLengthReason.GOODPUT,
        DraftLengthReason.PROBE,
        DraftLengthReason.ENDING,
    }
    assert found[DraftLengthReason.GOODPUT] > 4 * found[DraftLengthReason.PROBE]


def test_every_cause_has_a_name_to_show() -> None:
    assert DraftLengthReason.NO_DRAFT.label == "no_draft"
    assert len({cause.label for cause in DraftLengthReason}) == len(DraftLengthReason)
