"""Copied tokens are believed in by how many before them agree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from specdec_core.config import NgramConfig, SpecMethod
from specdec_core.messages import Role
from specdec_core.speculation.acceptance import AcceptanceByKind, AcceptanceHistory
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import Decision, OfferedRow
from specdec_core.speculation.ngram import MAX_MATCH, estimates
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info

K = 4


def copied(match_len: int, count: int = K, *, is_drawn: bool = False) -> Offer:
    """What prompt lookup offers after a match of so many tokens."""
    return Offer((1,) * count, *estimates(match_len, count, is_drawn))


def of_run(belief: AcceptanceByKind, match_len: int, count: int, *, is_drawn: bool) -> list[float]:
    """Of a sequence without a past."""
    return belief.of_run(AcceptanceHistory(is_drawn), copied(match_len, count, is_drawn=is_drawn))


def test_a_token_behind_accepted_ones_is_as_good_as_behind_as_many_that_matched() -> None:
    belief = AcceptanceByKind("ngram")
    single = {n: of_run(belief, n, 1, is_drawn=False)[0] for n in range(1, 2 * MAX_MATCH)}
    run = of_run(belief, 2, 8, is_drawn=False)
    chance = 1.0
    for place, found in enumerate(run):
        chance *= single[2 + place]
        assert found == pytest.approx(chance)


def test_before_anything_was_seen_longer_agreements_are_better_and_drawn_tokens_worse() -> None:
    greedy, drawn = (
        [
            of_run(AcceptanceByKind("ngram"), n, 1, is_drawn=is_drawn)[0]
            for n in range(1, MAX_MATCH + 1)
        ]
        for is_drawn in (False, True)
    )
    assert greedy == sorted(greedy)
    assert drawn == sorted(drawn)
    assert all(one > other for one, other in zip(greedy, drawn, strict=True))


@pytest.mark.parametrize("is_drawn", [False, True])
def test_what_came_of_tokens_is_learnt_of_their_kind_alone(is_drawn: bool) -> None:
    belief, rng = AcceptanceByKind("ngram"), random.Random(1)
    before = of_run(belief, 6, 2, is_drawn=is_drawn)
    others = of_run(belief, 1, K, is_drawn=not is_drawn)
    for _ in range(500):
        is_accepted = rng.random() < 0.6
        offer = copied(1, 1, is_drawn=is_drawn)
        belief.note(AcceptanceHistory(is_drawn), offer, int(is_accepted), 1)
    assert of_run(belief, 1, 1, is_drawn=is_drawn)[0] == pytest.approx(0.6, abs=0.1)
    assert of_run(belief, 6, 2, is_drawn=is_drawn) == before
    assert of_run(belief, 1, K, is_drawn=not is_drawn) == others


def test_a_sequence_whose_copies_are_better_than_others_is_believed_in_more() -> None:
    """A text that loops: behind long agreements it is always right, others are mostly."""
    belief, looping, other = AcceptanceByKind("ngram"), AcceptanceHistory(), AcceptanceHistory()
    for number in range(60):
        belief.note(looping, copied(MAX_MATCH), 1, 1)
        belief.note(other, copied(MAX_MATCH), number % 2, 1)
    chances = [belief.of_run(one, copied(MAX_MATCH, 1))[0] for one in (looping, other)]
    assert chances[0] > 0.9 > 0.6 > chances[1]


def test_each_token_of_a_run_is_a_trial_of_its_own_kind() -> None:
    belief = AcceptanceByKind("ngram")
    for _ in range(200):  # the first two are right, the third never is
        belief.note(AcceptanceHistory(), copied(1), 2, 3)
    chances = [of_run(belief, n, 1, is_drawn=False)[0] for n in (1, 2, 3)]
    assert chances[:2] == [pytest.approx(1.0, abs=0.1)] * 2
    assert chances[2] == pytest.approx(0.0, abs=0.1)


def offer(match_len: int) -> OfferedRow:
    return OfferedRow(AcceptanceHistory(), "ngram", copied(match_len), num_left=99)


def checked(policy: GoodputPolicy, rows: Sequence[OfferedRow]) -> list[int]:
    return [one.k for one in policy.num_checked(rows, 0)]


def policy(base_s: float, row_s: float, num_rows: int) -> GoodputPolicy:
    chooser = GoodputPolicy(max_group_size=num_rows)
    for rows in range(num_rows, 8 * num_rows):
        for _ in range(4):
            chooser.verify.observe(num_rows, rows, base_s + row_s * rows)
    chooser._exploration.credit = -1.0  # no look at another size
    return chooser


def test_where_rows_cost_nothing_what_follows_one_equal_token_is_checked_too() -> None:
    assert checked(policy(0.007, 0.00001, 1), [offer(1)]) == [K]


def test_where_rows_cost_only_what_follows_a_long_agreement_is() -> None:
    offers = [offer(1)] * 2 + [offer(MAX_MATCH)] * 6
    assert checked(policy(0.007, 0.0005, 8), offers) == [0] * 2 + [K] * 6


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL])
@pytest.mark.parametrize(("num_streams", "expected"), [(4, {0, 1, 2}), (5, set())])
def test_in_a_larger_batch_nobody_goes_by_agreement_and_one_equal_token_finds_nothing(
    method: SpecMethod, num_streams: int, expected: set[int]
) -> None:
    """Prompt lookup stands in for a draft model that is not there, too."""
    told: list[Offer] = []

    class Watched(GoodputPolicy):
        def num_checked(self, rows: Sequence[OfferedRow], tile_rows: int) -> list[Decision]:
            told.extend(row.offer for row in rows if row.offer.tokens)
            return super().num_checked(rows, tile_rows)

    limits = replace(config(method), max_group_size=8, window=8)
    speculation = replace(limits.speculation, ngram=NgramConfig(lookup_max=3, lookup_min=1))
    cell = Cell(replace(limits, speculation=speculation), k_policy=Watched(max_group_size=8))
    cell.join(info())
    for number in range(num_streams):
        cell.add(request(str(number), (1, 2, 3, 0, 1, 2, 3, 0) * 2, max_tokens=12))
    for _ in range(6):
        cell.turn()
    assert {kind for one in told for kind in one.kinds[:1]} <= expected
    assert told, "something was found"


def test_what_is_learnt_of_copied_tokens_says_what_is_checked() -> None:
    chooser = policy(0.007, 0.0005, 8)
    for _ in range(300):
        history = AcceptanceHistory()
        chooser.learn(history, "ngram", copied(MAX_MATCH), (0,))
    assert checked(chooser, [offer(MAX_MATCH)] * 8) == [0] * 8
    assert chooser.figures["acceptance_ngram"] < 0.1


def test_a_draft_that_is_there_is_asked_rather_than_what_follows_one_equal_token() -> None:
    """Prompt lookup always finds that: it would keep the draft from ever being asked."""
    chooser = policy(0.007, 0.0001, 8)
    history = AcceptanceHistory()
    steps = [chooser.draft_steps(history, K, 8, local=offer(n)).k for n in (1, 8)]
    assert steps == [0, 0], "nobody else drafts"
    chooser.welcome(info("draft", role=Role.DRAFT))
    steps = [chooser.draft_steps(history, K, 8, local=offer(n)).k for n in (1, 8)]
    assert steps == [K, 0]
