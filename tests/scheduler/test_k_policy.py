"""The history that a K policy reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from specdec_core.config import KPolicyName, SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from specdec_core.scheduler import AcceptanceHistory, FixedPolicy
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.k_policy import Decision, Terms
from specdec_core.speculation.policies import SchedulePolicy
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def test_a_round_that_accepted_nothing_counts_and_a_plain_one_does_not() -> None:
    history = AcceptanceHistory()
    for num_drafted, num_accepted in ((0, 0), (4, 0), (4, 3), (2, 0), (0, 0)):
        history.record(num_drafted, num_accepted)
    assert history.steps == [(4, 0), (4, 3), (2, 0)]
    assert (history.num_rounds, history.num_drafted, history.num_accepted) == (5, 10, 3)


def test_a_fixed_k_is_the_same_whatever_happened() -> None:
    history = AcceptanceHistory()
    history.record(4, 0)
    assert [FixedPolicy(3).terms("ngram", live).k for live in (1, 64)] == [3, 3]
    assert [FixedPolicy(3).draft_steps(history, 9, live).k for live in (1, 64)] == [3, 3]
    assert FixedPolicy(3).draft_steps(history, 2, 1).k == 2


def test_a_schedule_goes_by_the_live_sequences() -> None:
    policy = SchedulePolicy(((1, 4, 5), (5, 8, 2), (12, 64, 1)))
    lives = (1, 4, 5, 8, 9, 12, 64, 65)
    asked = {live: policy.draft_steps(AcceptanceHistory(), 4, live).k for live in lives}
    assert {live: min(policy.terms("ngram", live).k, 4) for live in lives} == asked
    assert asked == {1: 4, 4: 4, 5: 2, 8: 2, 9: 0, 12: 1, 64: 1, 65: 0}


@pytest.mark.parametrize(
    ("policy", "schedule", "message"),
    [
        (KPolicyName.SCHEDULE, (), "require each other"),
        (KPolicyName.FIXED, ((1, 2, 1),), "require each other"),
        (KPolicyName.SCHEDULE, ((2, 1, 1),), r"got \(2, 1, 1\)"),
        (KPolicyName.SCHEDULE, ((1, 2, 9),), r"0\.\.4 are needed"),
    ],
)
def test_impossible_schedules_are_refused(
    policy: KPolicyName, schedule: tuple[tuple[int, int, int], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SpeculationConfig(k_policy=policy, k_schedule=schedule)


def test_what_lookup_offered_is_judged_though_the_draft_was_asked() -> None:
    """So a policy that prefers the draft model learns when prompt lookup would be right again."""
    policy = Watching(3)
    cell = Cell(config(SpecMethod.HYBRID, 4), k_policy=policy)
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    client = cell.add(request("a", (1, 2, 3, 4) * 4, max_tokens=12))
    cell.run()
    client.check_plain()
    ids = (*client.request.prompt_token_ids, *client.token_ids)
    assert {source for source, _, _ in policy.judged} == {"ngram", "draft_model"}
    assert max(len(offer.tokens) for _, offer, _ in policy.judged) == 4
    for _, _, chosen in policy.judged:
        assert chosen[0] in ids


class Watching(FixedPolicy):
    """Remembers what it was told. It always asks the draft."""

    judged: ClassVar[list[tuple[str, Offer, Sequence[int]]]] = []

    def terms(self, source: str, num_live: int) -> Terms:
        return super().terms(source, num_live)._replace(k=4)

    def draft_steps(
        self, history: AcceptanceHistory, limit: int, num_live: int, *others: object
    ) -> Decision:
        return super().draft_steps(history, limit, num_live)

    def learn(
        self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Sequence[int]
    ) -> None:
        self.judged.append((source, offer, chosen))
