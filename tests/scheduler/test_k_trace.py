"""A trace of the controller holds all that its decisions depend on."""

from __future__ import annotations

import json
from functools import cache

import pytest

from benchmarks.k_trace import Record, TracedK, replay
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.policies import FixedPolicy
from tests.scheduler.test_goodput import Run, World

WORLDS = [
    World((0.3, 0.9) * 4, 24.0, 0.45, sequence_ms=0.9, tile_rows=32, second_tile_ms=13.0),
    World((0.3, 0.9) * 4, 20.0, 0.5, 1.0, 0.05),
]


@cache
def trace(world: World) -> list[Record]:
    """Written as JSON and read again."""
    lines: list[str] = []
    policy = TracedK(
        GoodputPolicy(max_group_size=8), lambda record: lines.append(json.dumps(record))
    )
    run = Run(world, policy)
    histories = run.new_histories()
    for _ in range(125):
        run._round(histories)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("world", WORLDS, ids=["lookup", "draft model"])
def test_the_same_calls_give_the_same_decisions(world: World) -> None:
    records = trace(world)
    decisions = list(replay(records, GoodputPolicy(max_group_size=8)))
    assert len(decisions) == sum("decided" in record for record in records) >= 250
    assert all(decision.is_same for decision in decisions)


@pytest.mark.parametrize("world", WORLDS, ids=["lookup", "draft model"])
def test_every_kind_of_record_counts(world: World) -> None:
    """Without it the decisions are others: nothing is written that nobody needs."""
    records = trace(world)
    for event in ("learn", "observe"):
        rest = [record for record in records if record["event"] != event]
        assert not all(d.is_same for d in replay(rest, GoodputPolicy(max_group_size=8)))


def test_a_traced_policy_decides_as_it_does_alone() -> None:
    alone = Run(WORLDS[0], GoodputPolicy(max_group_size=8)).tokens_per_second()
    traced = TracedK(GoodputPolicy(max_group_size=8), lambda record: None)
    assert Run(WORLDS[0], traced).tokens_per_second() == alone
    assert traced.figures["acceptance_ngram"] > 0.3
    assert TracedK(FixedPolicy(2), print).figures == {}
