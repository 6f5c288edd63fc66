"""Single decisions of the controller, where costs and chances are told."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from specdec_core.messages import GroupLease, GroupResult, Role, RowResult
from specdec_core.scheduler import AcceptanceHistory
from specdec_core.speculation.draft_load import DraftLoad
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.goodput import GoodputPolicy, _most
from specdec_core.speculation.k_policy import DRAFT_REPLICA
from specdec_core.speculation.token_selection import chances_in_a_row
from specdec_core.step_times import StepTime
from tests.scheduler.fake_replica import info
from tests.scheduler.test_goodput import LOOKUP, offered, row

SIZE = 8
RESTS = 32
PASS_S = 0.01


def policy(row_s: float = 0.0, step_s: float | None = None) -> GoodputPolicy:
    """Passes of 8 take 10 ms and `row_s` for each further row; a draft's step takes `step_s`."""
    made = GoodputPolicy(SIZE)
    rows = (8, 16, 24, 40)
    made.verify.expect([StepTime(SIZE, n, PASS_S + row_s * (n - SIZE)) for n in rows])
    for n in rows * 8:
        made.verify.observe(SIZE, n, PASS_S + row_s * (n - SIZE))
    if step_s is not None:
        made.draft.expect([StepTime(SIZE, SIZE * k, step_s * k) for k in (1, 4)])
    return made


def verified(made: GoodputPolicy) -> None:
    """A target's pass without drafted tokens."""
    rows = tuple(row(number, 0) for number in range(SIZE))
    lease = GroupLease(0, 1, "target", Role.TARGET, rows, 1.0)
    answers = tuple(RowResult(number, tokens=(1,)) for number in range(SIZE))
    made.observe(lease, GroupResult(0, 1, "target", answers, PASS_S), PASS_S)


def history(
    num_accepted: int, num_trials: int, made: GoodputPolicy, source: str
) -> AcceptanceHistory:
    found = AcceptanceHistory()
    for trial in range(num_trials):
        made.learn(found, source, Offer((1,)), (1 if trial < num_accepted else 2,))
    return found


def test_a_target_says_how_many_rows_gain_and_what_a_tile_is() -> None:
    made = GoodputPolicy(SIZE)
    made.welcome(replace(info("a"), tile_rows=16))
    assert (made.max_group_size, made.verify.tile_rows) == (SIZE, 16)
    made.welcome(replace(info("b"), max_num_seqs=4))
    assert made.max_group_size == 4


class Lookups:
    """Groups whose rows are offered one token each."""

    def __init__(self) -> None:
        self.policy = policy(row_s=0.001)
        self.policy._exploration.credit = -1.0  # no look at another size is among the choices
        self._good = history(40, 40, self.policy, LOOKUP)
        self._bad = history(0, 40, self.policy, LOOKUP)

    def choose(self, is_good: bool, size: int = SIZE) -> None:
        """A row costs what 0.8 tokens are worth."""
        past = self._good if is_good else self._bad
        found = self.policy.num_checked([offered(past, 1, num_left=50)] * size, 0)
        assert [one.k for one in found] == [int(is_good)] * size

    def learn(self, num_right: int) -> None:
        """So many of the tokens that were found last were right: none was foretold to be."""
        for place in range(SIZE):
            chosen = (1 if place < num_right else 2,)
            self.policy.learn(self._bad, LOOKUP, Offer((1,)), chosen)
        verified(self.policy)

    def rest(self) -> int:
        """Passes without prompt lookup from now on, that of the group chosen last included."""
        passes = 0
        while not self.policy.terms(LOOKUP, SIZE).k:
            assert self.policy.terms(LOOKUP, SIZE - 1).k, "fewer sequences are another matter"
            verified(self.policy)
            passes += 1
        return passes

    def expect_the_first_rest(self) -> None:
        """As if it had never rested: eight groups in vain, then four passes."""
        for _ in range(8):
            assert self.rest() == 0
            self.choose(False)
        assert self.rest() == 1 + 4


def test_prompt_lookup_rests_for_four_passes_behind_eight_groups_in_vain() -> None:
    lookups = Lookups()
    for is_good in (*[False] * 7, True, *[False] * 8):
        assert lookups.rest() == 0
        lookups.choose(is_good)
    assert lookups.rest() == 1 + 4


def test_prompt_lookup_rests_twice_as_long_each_time_that_it_looked_in_vain() -> None:
    lookups = Lookups()
    for _ in range(7):
        lookups.choose(False)
    rests = []
    for _ in range(5):
        lookups.choose(False)
        rests.append(lookups.rest())
    assert rests == [1 + 4, 1 + 8, 1 + 16, 1 + 32, 1 + 32]


def test_one_lookup_that_pays_ends_the_long_rests() -> None:
    lookups = Lookups()
    for _ in range(9):
        lookups.choose(False)
        lookups.rest()
    lookups.choose(True)
    lookups.expect_the_first_rest()


@pytest.mark.parametrize(("num_right", "ends"), [(SIZE, True), (SIZE // 3, False)])
def test_found_tokens_that_were_right_against_all_odds_end_the_rests(
    num_right: int, ends: bool
) -> None:
    """What they cost was not worth it by what was believed; that was wrong, not they."""
    lookups = Lookups()
    for _ in range(9):
        lookups.choose(False)
        lookups.rest()
    lookups.choose(False)
    lookups.learn(num_right)
    if not ends:
        assert lookups.rest() == 16
        return
    lookups.expect_the_first_rest()


def test_a_small_group_that_gains_ends_the_rest_of_large_ones() -> None:
    lookups = Lookups()
    for _ in range(8):
        lookups.choose(False)
    assert not lookups.policy.terms(LOOKUP, SIZE).k
    lookups.choose(True, SIZE - 1)
    assert lookups.policy.terms(LOOKUP, SIZE).k


@pytest.mark.parametrize(("step_s", "num_drafted"), [(0.002, 1), (0.05, 0)])
def test_a_model_that_rests_is_tried_again_if_a_good_one_would_pay(
    step_s: float, num_drafted: int
) -> None:
    made = policy(step_s=step_s)
    past = history(0, 60, made, DRAFT_REPLICA)
    for _ in range(RESTS):
        assert made.draft_steps(past, 4, SIZE).k == 0
        verified(made)
    assert made.draft_steps(past, 4, SIZE).k == num_drafted


def test_a_plan_counts_the_rounds_that_a_shared_draft_has_no_time_for() -> None:
    expected = [0.9 * number for number in range(SIZE + 1)]
    plan = policy(step_s=0.02)._promised(DraftLoad(SIZE, SIZE, 2.0), 1, expected)
    exposed_s = 0.02 + (0.02 - PASS_S) / (0.02 + PASS_S) * 0.02 / 2
    round_s = exposed_s + PASS_S
    share = PASS_S / (2 * 0.02 - round_s + PASS_S)
    tokens = share * SIZE * 1.9 + (1 - share) * SIZE
    seconds = share * round_s + (1 - share) * PASS_S
    assert plan.drafted_share == pytest.approx(share, rel=0.05)
    assert plan.tokens_per_second == pytest.approx(tokens / seconds, rel=0.05)


def test_a_short_draft_is_known_once_it_was_asked() -> None:
    made = policy(step_s=0.004)
    past = history(60, 60, made, DRAFT_REPLICA)
    assert not made.is_draft_short, "nobody has asked"
    made.draft_steps(past, 4, SIZE, targets_per_draft=1.0)
    assert not made.is_draft_short
    made.draft_steps(past, 4, SIZE, targets_per_draft=4.0)
    assert made.is_draft_short


@pytest.mark.parametrize("targets_per_draft", [1.0, 4.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8, 0.97])
@pytest.mark.parametrize("row_s", [0.0, 0.0002, 0.004])
@pytest.mark.parametrize("step_s", [0.0005, 0.002, 0.02])
def test_no_plan_that_is_left_out_is_the_best(
    step_s: float, row_s: float, rate: float, targets_per_draft: float
) -> None:
    made, crowd = policy(row_s, step_s), DraftLoad(SIZE, SIZE, targets_per_draft)
    chances = chances_in_a_row(rate, 15)
    expected = list(accumulate([p for p in chances for _ in range(SIZE)], initial=0.0))
    every = [made._promised(crowd, k, expected[: k * SIZE + 1]) for k in range(16)]
    assert _most(made._promises(crowd, 15, rate)) == _most(every)


def test_a_long_k_takes_no_more_plans_than_may_pay() -> None:
    """Each takes a pool's time in every round."""
    plans = policy(0.0002, 0.002)._promises(DraftLoad(SIZE, SIZE, 1.0), 15, rate=0.5)
    assert len(plans) == 16
    assert len({plan.steps for plan in plans}) <= 5
