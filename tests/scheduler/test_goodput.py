"""The goodput controller against worlds whose best K is known: near it, and never below K = 0.

A world says what a pass costs by its rows, sequences and tiles, what a draft step costs, and how
often a drafted token is accepted; time is what these say, with noise. The controller sees seconds
and tokens alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from statistics import mean, median

import pytest

from specdec_core.messages import GroupLease, GroupResult, LeaseRow, Role, RowResult
from specdec_core.scheduler.verification_budget import whole_tiles
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.draft_load import DraftLoad, DraftPlan
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.goodput import GoodputPolicy
from specdec_core.speculation.k_policy import DRAFT_REPLICA, DraftLengthReason, KPolicy, OfferedRow
from specdec_core.speculation.policies import FixedPolicy

LOOKUP = "ngram"
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
    draft_lease_ms: float = 0.0
    """Of every lease of the draft, however many steps it has."""
    sequence_ms: float = 0.0
    tile_rows: int = 0
    tile_ms: float = 0.0
    second_tile_ms: float = 0.0
    """Behind the first tile, once."""
    found: float = 1.0
    """Share of rounds in which prompt lookup finds anything."""

    @property
    def source(self) -> str:
        return DRAFT_REPLICA if self.draft_ms else LOOKUP

    def draft_step_s(self, size: int) -> float:
        return (self.draft_ms + self.draft_row_ms * size) / 1000

    def verify_s(self, num_sequences: int, num_rows: int) -> float:
        num_tiles = whole_tiles(num_rows, self.tile_rows) // self.tile_rows if self.tile_rows else 0
        by_rows = self.row_ms * num_rows + self.sequence_ms * num_sequences
        by_tiles = self.tile_ms * num_tiles + self.second_tile_ms * (num_tiles > 1)
        return (self.pass_ms + by_rows + by_tiles) / 1000


@dataclass
class Run:
    """One policy in one world."""

    world: World
    policy: KPolicy
    random: random.Random = field(default_factory=lambda: random.Random(3))
    noise: random.Random = field(default_factory=lambda: random.Random(4))
    seconds: float = 0.0
    num_tokens: int = 0
    max_tokens: int = 2048
    """Of every sequence."""
    reason: DraftLengthReason = DraftLengthReason.OFF
    """For what the last batch checked."""

    def tokens_per_second(self) -> float:
        histories = self.new_histories()
        for number in range(NUM_ROUNDS):
            if number == WARM_UP:
                self.seconds, self.num_tokens = 0.0, 0
            self._round(histories)
        return self.num_tokens / self.seconds

    def new_histories(self) -> list[AcceptanceHistory]:
        return [AcceptanceHistory() for _ in self.world.rates]

    def _round(self, histories: list[AcceptanceHistory]) -> None:
        world, size = self.world, len(histories)
        limits = [MAX_K if self.random.random() < world.found else 0 for _ in histories]
        if world.source == DRAFT_REPLICA:
            ks = [
                self.policy.draft_steps(history, limit, size).k if limit else 0
                for history, limit in zip(histories, limits, strict=True)
            ]
            if any(ks):
                self._draft([k for k in ks if k])
        else:
            most = self.policy.terms(LOOKUP, size).k
            limits = limits if most else [0] * size
            ks = [min(limit, most) for limit in limits]
        offers = [
            offered(h, k, world.source, self.max_tokens - h.num_rounds - h.num_accepted)
            for h, k in zip(histories, ks, strict=True)
        ]
        checked = self.policy.num_checked(offers, world.tile_rows)
        ks = [one.k for one in checked]
        self.reason = checked[0].reason
        rows: list[LeaseRow] = []
        results: list[RowResult] = []
        for number, (history, k, limit) in enumerate(zip(histories, ks, limits, strict=True)):
            # Token 1 is right, 0 is wrong: lookup offers all it has, whatever is proposed of it.
            drafted = [int(self.random.random() < world.rates[number]) for _ in range(limit)]
            num_accepted = next((i for i in range(k) if not drafted[i]), k)
            chosen = [1] * (num_accepted + 1)
            seen = drafted if world.source == LOOKUP else drafted[:k]
            if seen:
                self.policy.learn(history, world.source, Offer(tuple(seen)), chosen)
            history.record(k, num_accepted)
            self.num_tokens += len(chosen)
            if self._learns:
                rows.append(row(number, k))
                results.append(
                    RowResult(sequence_id=number, tokens=tuple(chosen), num_accepted=num_accepted)
                )
        self._spend(Role.TARGET, rows, results, world.verify_s(size, sum(ks) + size))

    @property
    def _learns(self) -> bool:
        """A fixed K needs no leases, which take longer to make than all else."""
        return not isinstance(self.policy, FixedPolicy)

    def _draft(self, ks: list[int]) -> None:
        rows = [
            LeaseRow(sequence_id=n, base_len=9, base_hash=0, new_ids=(1,), num_choices=k)
            for n, k in enumerate(ks)
        ]
        seconds = max(ks) * self.world.draft_step_s(len(ks)) + self.world.draft_lease_ms / 1000
        self._spend(Role.DRAFT, rows, [], seconds)

    def _spend(
        self, role: Role, rows: list[LeaseRow], results: list[RowResult], seconds: float
    ) -> None:
        self.seconds += seconds
        if not self._learns:
            return
        is_disturbed = self.noise.random() < 0.01
        seen = seconds * self.noise.uniform(0.9, 1.1) * (5.0 if is_disturbed else 1.0)
        lease = GroupLease(
            lease_id=0, epoch=0, replica_id="r", role=role, rows=tuple(rows), ttl_s=1.0
        )
        result = GroupResult(lease_id=0, epoch=0, replica_id="r", rows=tuple(results), seconds=seen)
        self.policy.observe(lease, result, seen)


def offered(
    history: AcceptanceHistory, k: int, source: str = LOOKUP, num_left: int = 99
) -> OfferedRow:
    """A row that offers `k` tokens of which nothing is said."""
    return OfferedRow(history, source, Offer((1,) * k), num_left)


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


PASSES = ((20.0, 0.05), (15.0, 1.0), (2.0, 3.0))
"""Bandwidth-bound, in between, and compute-bound."""
DRAFTS = ((1.0, 0.05), (), (8.0, 0.5))
"""A cheap one, none, and a dear one."""
AMX = {"pass_ms": 24.0, "row_ms": 0.45, "sequence_ms": 0.9, "tile_ms": 2.0, "second_tile_ms": 13.0}
TILES = {"amx": AMX, "wide": {"pass_ms": 10.0, "row_ms": 0.05, "tile_ms": 20.0}}
"""As passes cost on machines whose linears go by tiles: a tile filled up is cheap, the next one
dear."""


def check_that_it_is_near_the_best(world: World) -> None:
    """Of every fixed K, and not below plain decoding. With one sequence luck alone makes 5 % and
    more: the mean of four runs counts."""
    shares = [reached_shares(world, luck) for luck in range(3, 7 if len(world.rates) == 1 else 4)]
    of_best, of_plain = map(mean, zip(*shares, strict=True))
    assert of_best >= 0.95
    assert of_plain >= 0.97


def reached_shares(world: World, luck: int) -> tuple[float, float]:
    """Of the best fixed K's pace, and of plain decoding's."""

    def pace(policy: KPolicy) -> float:
        run = Run(world, policy, random.Random(luck), random.Random(luck + 1))
        return run.tokens_per_second()

    fixed = [pace(FixedPolicy(k)) for k in (0, 1, 2, 4, 8)]
    reached = pace(GoodputPolicy(max_group_size=64))
    return reached / max(fixed), reached / fixed[0]


@pytest.mark.covering(1)
@pytest.mark.parametrize("draft", DRAFTS, ids=str)
@pytest.mark.parametrize("costs", PASSES, ids=str)
@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("rate", [0.9, 0.1, 0.5])
def test_it_is_near_the_best_fixed_k_and_not_below_plain_decoding(
    rate: float, size: int, costs: tuple[float, float], draft: tuple[float, ...]
) -> None:
    check_that_it_is_near_the_best(World((rate,) * size, *costs, *draft))


@pytest.mark.nightly
@pytest.mark.parametrize("draft", DRAFTS, ids=str)
@pytest.mark.parametrize("costs", PASSES, ids=str)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_in_large_batches_too(
    rate: float, costs: tuple[float, float], draft: tuple[float, ...]
) -> None:
    check_that_it_is_near_the_best(World((rate,) * 24, *costs, *draft))


@pytest.mark.covering(1)
@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize(
    ("size", "found"),
    [(16, 0.5), (16, 1.0), (1, 1.0), pytest.param(64, 1.0, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("rate", [0.5, 0.1, 0.9])
def test_on_machines_of_tiles_too(rate: float, size: int, found: float, tiles: str) -> None:
    """Lookup finds something always, or in half of the rounds."""
    check_that_it_is_near_the_best(World((rate,) * size, **TILES[tiles], tile_rows=32, found=found))


@pytest.mark.parametrize(
    ("size", "lease_ms", "step_ms"), [(8, 2.0, 1.5), (32, 3.0, 1.5), (8, 8.0, 0.5)]
)
def test_what_a_drafts_lease_takes_besides_its_steps_is_told_from_them(
    size: int, lease_ms: float, step_ms: float
) -> None:
    """As on a GPU: few steps look dear and many cheap, by the step."""
    world = World((0.7,) * size, 7.0, 0.02, step_ms, 0.02, draft_lease_ms=lease_ms)
    check_that_it_is_near_the_best(world)


def test_plans_are_made_once_for_all_sequences_of_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the draft model rests, and whether a good one would pay is asked of each."""
    run = Run(World((0.1,) * 64, 7.0, 0.5, 6.0), GoodputPolicy(max_group_size=64))
    histories = run.new_histories()
    for _ in range(150):
        run._round(histories)
    asked: list[int] = []
    promised = GoodputPolicy._promised

    def counted(policy: GoodputPolicy, crowd: DraftLoad, k: int, rate: float) -> DraftPlan:
        asked.append(k)
        return promised(policy, crowd, k, rate)

    monkeypatch.setattr(GoodputPolicy, "_promised", counted)
    for _ in range(10):
        run._round(histories)
    assert len(asked) <= 10 * 3 * (MAX_K + 1)


def closed_batch_s(world: World, policy: KPolicy, seed: int) -> float:
    """Seconds until 48 tokens of every sequence are there: who is done leaves its place empty."""
    luck, noise = random.Random(seed), random.Random(1000 + seed)
    histories, seconds = Run(world, policy).new_histories(), 0.0
    while histories:
        rates = world.rates[: len(histories)]
        run = Run(replace(world, rates=rates), policy, luck, noise, max_tokens=48)
        run._round(histories)
        seconds += run.seconds
        histories = [h for h in histories if h.num_rounds + h.num_accepted < 48]
    return seconds


@pytest.mark.parametrize(
    "size", [4, *(pytest.param(size, marks=pytest.mark.nightly) for size in (2, 8, 16))]
)
def test_a_batch_that_ends_is_no_slower_than_without_drafts(size: int) -> None:
    """Its last sequence says how long it takes, however many tokens the others gain by round."""
    world = World((0.2,) * size, 13.0, 0.17)
    plain = closed_batch_s(world, FixedPolicy(0), 0)
    ratios = []
    for seed in range(8):
        policy = GoodputPolicy(max_group_size=64)
        turns = [closed_batch_s(world, policy, 10 * seed + turn) for turn in range(6)]
        ratios.append(plain / median(turns[1:]))
    assert min(ratios) > 0.95
    assert mean(ratios) > 0.98, "looks at other sizes take one pass in a hundred"


def test_sequences_of_one_batch_get_each_its_own_k() -> None:
    world = World((0.05,) * 4 + (0.95,) * 4, 15.0, 1.0)
    fixed = [Run(world, FixedPolicy(k)).tokens_per_second() for k in range(MAX_K + 1)]
    assert Run(world, GoodputPolicy(max_group_size=64)).tokens_per_second() > 1.1 * max(fixed)


def test_it_follows_a_text_that_changes_its_nature() -> None:
    """Half of the rounds are easy, half hopeless: no fixed K serves both."""
    policy, histories = GoodputPolicy(max_group_size=64), [AcceptanceHistory() for _ in range(8)]
    easy = Run(World((0.95,) * 8, 10.0, 0.5), policy)
    hard = Run(World((0.02,) * 8, 10.0, 0.5), policy)
    for run in (easy, hard, easy, hard):
        for _ in range(120):
            run._round(histories)
        offers = [offered(history, MAX_K, num_left=0) for history in histories]
        checked = policy.num_checked(offers, tile_rows=0)
        if checked[0].reason is DraftLengthReason.PROBE:  # a look at another size; the next is none
            checked = policy.num_checked(offers, tile_rows=0)
        ks = [one.k for one in checked]
        assert all(k >= 4 for k in ks) if run is easy else not any(ks)


def test_a_large_batch_that_begins_to_repeat_itself_is_found_out_soon() -> None:
    """Though prompt lookup rested for 32 passes at a time."""
    policy, histories = GoodputPolicy(max_group_size=64), [AcceptanceHistory() for _ in range(16)]
    hard = Run(World((0.02,) * 16, 10.0, 0.5), policy)
    easy = Run(World((0.95,) * 16, 10.0, 0.5), policy)
    for _ in range(300):
        hard._round(histories)
    drafted = [history.num_drafted for history in histories]
    for _ in range(64):
        easy._round(histories)
    gained = [now.num_drafted - before for now, before in zip(histories, drafted, strict=True)]
    assert min(gained) > 32


def test_a_group_of_another_size_is_chosen_for_anew() -> None:
    """The last sequences of a batch have a pass to themselves that rows hardly make longer."""
    policy = GoodputPolicy(max_group_size=64)
    histories = [AcceptanceHistory() for _ in range(48)]
    run = Run(World((0.5,) * 48, 20.0, 0.0, tile_rows=16, tile_ms=10.0), policy)
    for _ in range(150):
        run._round(histories)
    many, few = (
        [one.k for one in policy.num_checked([offered(h, 4, num_left=0) for h in own], 16)]
        for own in (histories, histories[:3])
    )
    assert sum(few) >= len(few)
    assert sum(many) < len(many) / 2


def test_a_draft_model_is_heard_though_lookup_was_there_first() -> None:
    """Its steps have no cost yet, while passes with lookup's proposals have been seen."""
    policy = GoodputPolicy(max_group_size=8)
    Run(World((0.5,) * 8, 10.0, 0.5), policy).tokens_per_second()
    assert policy.draft_steps(AcceptanceHistory(), 5, 8).k == 5


def test_lookup_that_the_draft_model_outdoes_gives_way() -> None:
    policy, history = GoodputPolicy(max_group_size=8), AcceptanceHistory()
    for _ in range(30):
        policy.learn(history, LOOKUP, Offer((1, 1)), (0,))
    local = offered(history, 4)
    assert policy.draft_steps(history, 4, 8, local=local).k == 0, "nobody does better"
    for _ in range(30):
        policy.learn(history, DRAFT_REPLICA, Offer((1, 1)), (1, 1, 1))
    assert policy.draft_steps(history, 4, 8, local=local).k == 4


@pytest.mark.parametrize(("step", "is_outdone"), [(0.1, True), (20.0, False)])
def test_lookup_is_outdone_only_by_a_draft_model_that_is_worth_its_time(
    step: float, is_outdone: bool
) -> None:
    policy, history = GoodputPolicy(max_group_size=8), AcceptanceHistory()
    Run(World((0.9,) * 8, 10.0, 0.1, step), policy).tokens_per_second()
    for _ in range(60):
        policy.learn(history, LOOKUP, Offer((1, 1)), (0,))
        policy.learn(history, DRAFT_REPLICA, Offer((1, 1)), (1, 1, 1))
    steps = policy.draft_steps(history, 4, 8, local=offered(history, 4)).k
    assert (steps > 0) is is_outdone


def test_a_draft_model_that_was_given_up_is_tried_again() -> None:
    """Also when its rows have much to catch up with, which says nothing of a step's cost."""
    policy, histories = GoodputPolicy(max_group_size=64), [AcceptanceHistory() for _ in range(4)]
    bad, good = (Run(World((rate,) * 4, 10.0, 0.5, 2.0, 0.1), policy) for rate in (0.02, 0.9))
    for _ in range(150):
        bad._round(histories)
    assert policy.last_steps == 0
    for _ in range(400):
        good._round(histories)
    assert policy.last_steps >= 3
    policy.num_passes_unused = 1000
    behind = LeaseRow(sequence_id=0, base_len=0, base_hash=0, new_ids=(1,) * 90, num_choices=1)
    for role, leased in ((Role.DRAFT, behind), (Role.TARGET, row(0, 1))):
        lease = GroupLease(
            lease_id=0, epoch=0, replica_id="r", role=role, rows=(leased,), ttl_s=1.0
        )
        result = GroupResult(lease_id=0, epoch=0, replica_id="r", rows=(), seconds=0.01)
        policy.observe(lease, result, result.seconds)
    assert policy.num_passes_unused == 0


@pytest.mark.parametrize("seed", [5, 7])
def test_a_draft_model_whose_tokens_nobody_checks_rests(seed: int) -> None:
    """One step would pay by what is known of all, and not by what is known of this sequence."""
    policy = GoodputPolicy(max_group_size=64)
    run = Run(World((0.1,), 15.0, 1.0, 1.0, 0.05), policy, random.Random(seed))
    run.noise = random.Random(seed + 1)
    (history,) = histories = run.new_histories()
    num_in_vain = 0
    for _ in range(300):
        num_checked = len(history.steps)
        run._round(histories)
        num_in_vain += policy.last_steps > 0 and len(history.steps) == num_checked
    assert num_in_vain < 40


def test_before_anything_was_measured_it_drafts_what_it_may() -> None:
    policy = GoodputPolicy(max_group_size=8)
    assert policy.draft_steps(AcceptanceHistory(), 5, 1).k == 5
    assert policy.terms(LOOKUP, 1).k >= 5


def test_prefills_and_catch_ups_say_nothing_of_a_round() -> None:
    policy = GoodputPolicy(max_group_size=8)
    prefill = LeaseRow(sequence_id=0, base_len=0, base_hash=0, new_ids=(1,) * 90, num_choices=1)
    chunk = LeaseRow(sequence_id=0, base_len=0, base_hash=0, new_ids=(1,), num_choices=0)
    for rows in ((prefill,), (chunk,), (row(1, 2), prefill)):
        lease = GroupLease(
            lease_id=0, epoch=0, replica_id="r", role=Role.TARGET, rows=rows, ttl_s=1.0
        )
        result = GroupResult(lease_id=0, epoch=0, replica_id="r", rows=(), seconds=1.0)
        policy.observe(lease, result, result.seconds)
    assert not policy.verify.is_known
