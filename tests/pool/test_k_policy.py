"""The history that a K policy reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from specdec_core.config import KPolicyName, SpecMethod, SpeculationConfig
from specdec_core.scheduler import AcceptanceHistory, DraftSource, FixedPolicy
from specdec_core.speculation.k_policy import SchedulePolicy
from tests.pool.cell import Cell, config, request
from tests.pool.fake_replica import info


def test_a_round_that_accepted_nothing_counts_and_a_plain_one_does_not() -> None:
    history = AcceptanceHistory()
    for num_drafted, num_accepted in ((0, 0), (4, 0), (4, 3), (2, 0), (0, 0)):
        history.record(num_drafted, num_accepted)
    assert history.histogram == [2, 0, 0, 1]
    assert (history.num_rounds, history.num_drafted, history.num_accepted) == (5, 10, 3)


def test_a_fixed_k_is_the_same_whatever_happened() -> None:
    history = AcceptanceHistory()
    history.record(4, 0)
    asked = [
        FixedPolicy(3).num_draft_tokens(history, DraftSource.LOOKUP, 9, live) for live in (1, 64)
    ]
    assert asked == [3, 3]
    assert FixedPolicy(3).num_draft_tokens(history, DraftSource.MODEL, 2, 1) == 2


def test_a_schedule_goes_by_the_live_sequences() -> None:
    policy = SchedulePolicy(((1, 4, 5), (5, 8, 2), (12, 64, 1)))
    asked = {
        live: policy.num_draft_tokens(AcceptanceHistory(), DraftSource.LOOKUP, 4, live)
        for live in (1, 4, 5, 8, 9, 12, 64, 65)
    }
    assert asked == {1: 4, 4: 4, 5: 2, 8: 2, 9: 0, 12: 1, 64: 1, 65: 0}


@pytest.mark.parametrize(
    ("policy", "schedule", "message"),
    [
        (KPolicyName.SCHEDULE, (), "need each other"),
        (KPolicyName.FIXED, ((1, 2, 1),), "need each other"),
        (KPolicyName.SCHEDULE, ((2, 1, 1),), r"got \(2, 1, 1\)"),
        (KPolicyName.SCHEDULE, ((1, 2, 9),), r"0\.\.4 are needed"),
    ],
)
def test_impossible_schedules_are_refused(
    policy: KPolicyName, schedule: tuple[tuple[int, int, int], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SpeculationConfig(k_policy=policy, k_schedule=schedule)


def test_what_lookup_offered_is_judged_though_it_was_not_proposed() -> None:
    """So a policy that has given prompt lookup up learns when it would be right again."""
    policy = Watching(0)
    cell = Cell(config(SpecMethod.NGRAM, 4), k_policy=policy)
    cell.join(info("target"))
    client = cell.add(request("a", (1, 2, 3, 4) * 4, max_tokens=12))
    cell.run()
    client.check_plain()
    ids = (*client.request.prompt_token_ids, *client.token_ids)
    assert max(len(drafted) for _, drafted, _ in policy.judged) == 4
    for drafter, _, chosen in policy.judged:
        assert drafter is DraftSource.LOOKUP
        assert len(chosen) == 1
        assert chosen[0] in ids


class Watching(FixedPolicy):
    """Remembers what it was told."""

    judged: ClassVar[list[tuple[DraftSource, Sequence[int], Sequence[int]]]] = []

    def learn(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        drafted: Sequence[int],
        chosen: Sequence[int],
        num_agreed: int = 0,
    ) -> None:
        self.judged.append((drafter, drafted, chosen))
