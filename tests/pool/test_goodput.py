"""The goodput controller against worlds whose best K is known: near it, and never below K = 0.

A world says what a pass costs by its rows, what a draft step costs, and how often a drafted token
is accepted; time is what these say, with noise. The controller sees seconds and tokens alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from specdec_core.leases import GroupLease, GroupResult, LeaseRow, Role, RowResult
from specdec_core.pool.goodput import GoodputK
from specdec_core.pool.k_policy import AcceptanceHistory, Drafter, FixedK, KPolicy
from specdec_core.pool.step_costs import StepCost

MAX_K = 8
NUM_ROUNDS = 300
WARM_UP = 100


@dataclass(frozen=True)
class World:
    """Milliseconds; a draft step of 0 is prompt lookup."""

    rates: tuple[float, ...]
    """Acceptance of one sequence each."""
    pass_ms: float
    row_ms: float
    draft_ms: float = 0.0
    draft_row_ms: float = 0.0

    @property
    def drafter(self) -> Drafter:
        return Drafter.MODEL if self.draft_ms else Drafter.LOOKUP

    def draft_step_s(self, size: int) -> float:
        return (self.draft_ms + self.draft_row_ms * size) / 1000

    def verify_s(self, num_rows: int) -> float:
        return (self.pass_ms + self.row_ms * num_rows) / 1000


@dataclass
class Run:
    """One policy in one world."""

    world: World
    policy: KPolicy
    random: random.Random = field(default_factory=lambda: random.Random(3))
    noise: random.Random = field(default_factory=lambda: random.Random(4))
    seconds: float = 0.0
    num_tokens: int = 0

    def tokens_per_second(self) -> float:
        histories = [AcceptanceHistory() for _ in self.world.rates]
        for number in range(NUM_ROUNDS):
            if number == WARM_UP:
                self.seconds, self.num_tokens = 0.0, 0
            self._round(histories)
        return self.num_tokens / self.seconds

    def _round(self, histories: list[AcceptanceHistory]) -> None:
        world, size = self.world, len(histories)
        ks = [
            self.policy.num_draft_tokens(history, world.drafter, MAX_K, size)
            for history in histories
        ]
        if world.drafter is Drafter.MODEL and any(ks):
            self._draft([k for k in ks if k])
        rows, results = [], []
        for number, (history, k) in enumerate(zip(histories, ks, strict=True)):
            # Token 1 is right, 0 is wrong: lookup offers all it has, whatever is proposed of it.
            offered = [int(self.random.random() < world.rates[number]) for _ in range(MAX_K)]
            num_accepted = next((i for i in range(k) if not offered[i]), k)
            chosen = [1] * (num_accepted + 1)
            seen = offered if world.drafter is Drafter.LOOKUP else offered[:k]
            if seen:
                self.policy.learn(history, world.drafter, seen, chosen)
            history.record(k, num_accepted)
            rows.append(row(number, k))
            results.append(
                RowResult(sequence_id=number, tokens=tuple(chosen), num_accepted=num_accepted)
            )
            self.num_tokens += len(chosen)
        self._spend(Role.TARGET, rows, results, world.verify_s(sum(ks) + size))

    def _draft(self, ks: list[int]) -> None:
        rows = [
            LeaseRow(sequence_id=n, base_len=9, base_hash=0, new_ids=(1,), num_choices=k)
            for n, k in enumerate(ks)
        ]
        seconds = max(ks) * self.world.draft_step_s(len(ks))
        self._spend(Role.DRAFT, rows, [], seconds)

    def _spend(
        self, role: Role, rows: list[LeaseRow], results: list[RowResult], seconds: float
    ) -> None:
        is_disturbed = self.noise.random() < 0.01
        seen = seconds * self.noise.uniform(0.9, 1.1) * (5.0 if is_disturbed else 1.0)
        lease = GroupLease(
            lease_id=0, epoch=0, replica_id="r", role=role, rows=tuple(rows), ttl_s=1.0
        )
        result = GroupResult(lease_id=0, epoch=0, replica_id="r", rows=tuple(results), seconds=seen)
        self.policy.observe(lease, result)
        self.seconds += seconds


def row(number: int, k: int) -> LeaseRow:
    proposal = (1,) * k
    return LeaseRow(
        sequence_id=number,
        base_len=9,
        base_hash=0,
        new_ids=(1,),
        proposal=proposal,
        num_choices=k + 1,
    )


def worlds() -> list[World]:
    """Bandwidth-bound, in between, and compute-bound; cheap, dear and no drafts; any batch."""
    return [
        World((rate,) * size, pass_ms, row_ms, *draft)
        for rate in (0.1, 0.5, 0.9)
        for size in (1, 8, 24)
        for pass_ms, row_ms in ((20.0, 0.05), (15.0, 1.0), (2.0, 3.0))
        for draft in ((), (1.0, 0.05), (8.0, 0.5))
    ]


@pytest.mark.parametrize("world", worlds(), ids=str)
def test_it_is_near_the_best_fixed_k_and_not_below_plain_decoding(world: World) -> None:
    fixed = [Run(world, FixedK(k)).tokens_per_second() for k in (0, 1, 2, 4, 8)]
    reached = Run(world, GoodputK(max_group_size=64)).tokens_per_second()
    assert reached >= 0.95 * max(fixed)
    assert reached >= 0.97 * fixed[0]


def test_sequences_of_one_batch_get_each_its_own_k() -> None:
    world = World((0.05,) * 4 + (0.95,) * 4, 15.0, 1.0)
    fixed = [Run(world, FixedK(k)).tokens_per_second() for k in range(MAX_K + 1)]
    assert Run(world, GoodputK(max_group_size=64)).tokens_per_second() > 1.1 * max(fixed)


def test_it_follows_a_text_that_changes_its_nature() -> None:
    """Half of the rounds are easy, half hopeless: no fixed K serves both."""
    policy, histories = GoodputK(max_group_size=64), [AcceptanceHistory() for _ in range(8)]
    easy = Run(World((0.95,) * 8, 10.0, 0.5), policy)
    hard = Run(World((0.02,) * 8, 10.0, 0.5), policy)
    for run in (easy, hard, easy, hard):
        for _ in range(120):
            run._round(histories)
        ks = [policy.num_draft_tokens(h, Drafter.LOOKUP, MAX_K, 8) for h in histories]
        assert all(k >= 4 for k in ks) if run is easy else not any(ks)


def test_a_draft_model_that_was_given_up_is_tried_again() -> None:
    """Also when its rows have much to catch up with, which says nothing of a step's cost."""
    policy, histories = GoodputK(max_group_size=64), [AcceptanceHistory() for _ in range(4)]
    bad, good = (Run(World((rate,) * 4, 10.0, 0.5, 2.0, 0.1), policy) for rate in (0.02, 0.9))
    for _ in range(150):
        bad._round(histories)
    assert policy.last_steps == 0
    for _ in range(400):
        good._round(histories)
    assert policy.last_steps >= 3
    policy.num_rests = 1000
    behind = LeaseRow(sequence_id=0, base_len=0, base_hash=0, new_ids=(1,) * 90, num_choices=1)
    for role, leased in ((Role.DRAFT, behind), (Role.TARGET, row(0, 1))):
        lease = GroupLease(
            lease_id=0, epoch=0, replica_id="r", role=role, rows=(leased,), ttl_s=1.0
        )
        result = GroupResult(lease_id=0, epoch=0, replica_id="r", rows=(), seconds=0.01)
        policy.observe(lease, result)
    assert policy.num_rests == 0


def test_before_anything_was_measured_it_drafts_what_it_may() -> None:
    policy = GoodputK(max_group_size=8)
    for drafter in Drafter:
        assert policy.num_draft_tokens(AcceptanceHistory(), drafter, 5, 1) == 5


def test_prefills_and_catch_ups_say_nothing_of_a_round() -> None:
    policy = GoodputK(max_group_size=8)
    prefill = LeaseRow(sequence_id=0, base_len=0, base_hash=0, new_ids=(1,) * 90, num_choices=1)
    chunk = LeaseRow(sequence_id=0, base_len=0, base_hash=0, new_ids=(1,), num_choices=0)
    for rows in ((prefill,), (chunk,), (row(1, 2), prefill)):
        lease = GroupLease(
            lease_id=0, epoch=0, replica_id="r", role=Role.TARGET, rows=rows, ttl_s=1.0
        )
        result = GroupResult(lease_id=0, epoch=0, replica_id="r", rows=(), seconds=1.0)
        policy.observe(lease, result)
    assert not policy.verify.is_known


def test_costs_are_learnt_from_few_passes_and_never_fall_with_the_rows() -> None:
    cost = StepCost()
    for rows in (8, 40, 8, 24, 16, 40):
        cost.observe(rows, 0.010 + 0.0005 * rows)
    assert cost.at(32) == pytest.approx(0.026, rel=0.05)
    assert cost.slope == pytest.approx(0.0005, rel=0.1)
    falling = StepCost()
    for rows, seconds in ((8, 0.03), (40, 0.02), (8, 0.03), (40, 0.02)):
        falling.observe(rows, seconds)
    assert falling.slope == 0.0
