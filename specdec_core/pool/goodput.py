"""K by goodput: a token is drafted where it is expected to earn more tokens than its time would.

A group of B sequences commits tokens at a rate of `goodput` per second. One more drafted token of
one sequence costs a row of the target's pass, and with a draft model a share of a draft step: so
many seconds are worth seconds x goodput tokens, its price. It earns the chance that it and all
before it are accepted. Taking every token that earns more than its price maximises tokens per
second (Dinkelbach's method for a ratio of sums; TETRIS, arXiv 2502.15197, chooses alike).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec_core.config import KPolicyName, PoolConfig
from specdec_core.leases import GroupLease, GroupResult, LeaseRow, Role
from specdec_core.pool.k_policy import (
    AcceptanceHistory,
    AcceptanceRate,
    Drafter,
    FixedK,
    KPolicy,
    ScheduledK,
)
from specdec_core.pool.step_costs import StepCost

_INERTIA = 0.1
"""A price must be beaten by so much, relatively, before K changes: estimates are noisy."""
_PRIOR_WEIGHT = 4.0
"""Trials that what all sequences have seen counts for in the estimate of one."""
_COMMON_HALF_LIFE = 300.0
_FIRST_GUESS = 0.6
_PROBE_EVERY = 100
"""Target passes after which a draft model that is not used is tried again, for one token. Prompt
lookup needs no trial: what it would have proposed is compared for nothing."""
_NUM_TRIED = 12
"""Target passes at the start that try short and long proposals in turn: passes of one size alone
would not tell what a row costs."""
_KEPT = 0.95
_MAX_NEW_IDS = 4
"""Fed ids per row up to which a group's time is that of a round; more are a catch-up."""


@dataclass(eq=False, slots=True)
class _Mean:
    """Of what was seen of late."""

    weight: float = 0.0
    total: float = 0.0

    def note(self, value: float, weight: float = 1.0) -> None:
        self.weight = self.weight * _KEPT + weight
        self.total = self.total * _KEPT + value * weight

    def value(self, otherwise: float) -> float:
        return self.total / self.weight if self.weight else otherwise


def _common() -> dict[Drafter, AcceptanceRate]:
    return {drafter: AcceptanceRate(_COMMON_HALF_LIFE) for drafter in Drafter}


@dataclass(eq=False, slots=True)
class GoodputK:
    """Learns what passes cost and how often drafts are accepted. Reads no clock."""

    max_group_size: int
    verify: StepCost = field(default_factory=StepCost)
    """Of a target's pass, by rows."""
    draft: StepCost = field(default_factory=StepCost)
    """Of one draft step, by sequences."""
    rates: dict[Drafter, AcceptanceRate] = field(default_factory=_common)
    """Of all sequences."""
    tokens_per_row: _Mean = field(default_factory=_Mean)
    """Committed per sequence and round."""
    rows_per_row: _Mean = field(default_factory=_Mean)
    """Rows of the target's pass per sequence: K + 1."""
    steps: _Mean = field(default_factory=_Mean)
    """Draft steps per target pass."""
    last_steps: int = 0
    """Of the last group that was drafted for, or 0 where none was."""
    num_rests: int = 0
    """Target passes since the draft model was last used."""
    is_promising: bool = False
    """Most of what was drafted last was accepted."""
    _steps_since: int = 0

    def num_draft_tokens(
        self, history: AcceptanceHistory, drafter: Drafter, limit: int, num_live: int
    ) -> int:
        if self.verify.num_seen < _NUM_TRIED:
            return self._tried(limit)
        size = max(min(num_live, self.max_group_size), 1)
        if drafter is Drafter.MODEL:
            steps = self._num_steps(size, limit)
            if steps == 0 and (self._goes_on or self.num_rests >= _PROBE_EVERY):
                return min(1, limit)
            limit = steps
        rate = history.rates[drafter].estimate(self._common_rate(drafter), _PRIOR_WEIGHT)
        k = _steady(history.last_k.get(drafter, 0), rate, self.row_price(size), limit)
        history.last_k[drafter] = k
        return k

    def learn(
        self,
        history: AcceptanceHistory,
        drafter: Drafter,
        drafted: Sequence[int],
        chosen: Sequence[int],
    ) -> None:
        pairs = list(zip(drafted, chosen, strict=False))
        num_accepted = next((i for i, (ours, own) in enumerate(pairs) if ours != own), len(pairs))
        num_trials = min(num_accepted + 1, len(pairs))
        for rate in (history.rates[drafter], self.rates[drafter]):
            rate.note(num_accepted, num_trials)

    def observe(self, lease: GroupLease, result: GroupResult) -> None:
        is_round = result.seconds > 0.0 and all(_is_round(row) for row in lease.rows)
        size = len(lease.rows)
        if lease.role is Role.DRAFT:
            num_steps = max(row.num_choices for row in lease.rows)
            self._steps_since += num_steps
            if is_round:
                self.draft.observe(size, result.seconds / num_steps)
        elif is_round:
            self._observe_target(lease, result, size)

    def _observe_target(self, lease: GroupLease, result: GroupResult, size: int) -> None:
        num_rows = sum(len(row.new_ids) + len(row.proposal) for row in lease.rows)
        self.verify.observe(num_rows, result.seconds)
        self.rows_per_row.note(num_rows / size, size)
        self.tokens_per_row.note(sum(len(row.tokens) for row in result.rows) / size, size)
        self.steps.note(self._steps_since)
        self.num_rests = 0 if self._steps_since else self.num_rests + 1
        num_drafted = num_rows - sum(len(row.new_ids) for row in lease.rows)
        num_accepted = sum(row.num_accepted for row in result.rows)
        self.is_promising = self._steps_since > 0 and 2 * num_accepted > num_drafted
        self.last_steps, self._steps_since = self._steps_since, 0

    def row_price(self, size: int) -> float:
        """Tokens that the time of one more row is worth."""
        return self.verify.slope * self.goodput(size)

    def goodput(self, size: int) -> float:
        """Tokens per second of groups of `size` sequences: as of late, or plain if that is more."""
        plain = size / self.verify.at(size)
        round_s = self.verify.at(size * self.rows_per_row.value(1.0))
        if self.draft.is_known:
            round_s += self.steps.value(0.0) * self.draft.at(size)
        return max(plain, size * self.tokens_per_row.value(1.0) / round_s)

    def _common_rate(self, drafter: Drafter) -> float:
        return self.rates[drafter].estimate(_FIRST_GUESS, _PRIOR_WEIGHT)

    @property
    def _goes_on(self) -> bool:
        """A trial of the draft model that contradicts what is believed of it."""
        return self.is_promising and self._common_rate(Drafter.MODEL) < 0.5

    def _tried(self, limit: int) -> int:
        return (limit, 0, -(-limit // 2))[self.verify.num_seen % 3]

    def _num_steps(self, size: int, limit: int) -> int:
        """Draft steps of the next round. All sequences of a group share them, so they are chosen
        for all: what is best for a group of sequences like those that were seen."""
        if not self.draft.is_known:
            return limit
        rate = self._common_rate(Drafter.MODEL)
        return max(range(limit + 1), key=lambda k: self._expected(size, rate, k))

    def _expected(self, size: int, rate: float, k: int) -> float:
        """Tokens per second of groups that all draft `k` tokens."""
        tokens = sum(rate**j for j in range(k + 1))
        seconds = self.verify.at(size * (k + 1)) + k * self.draft.at(size)
        return size * tokens / seconds * (1.0 + _INERTIA / 2 * (k == self.last_steps))


def make_k_policy(config: PoolConfig) -> KPolicy:
    speculation = config.speculation
    match speculation.k_policy:
        case KPolicyName.GOODPUT:
            return GoodputK(config.max_group_size)
        case KPolicyName.SCHEDULE:
            return ScheduledK(speculation.k_schedule)
    return FixedK(speculation.num_draft_tokens)


def _steady(last: int, rate: float, price: float, limit: int) -> int:
    """The best K, or the last one while another is hardly better."""
    most = _num_worthwhile(rate, price * (1.0 - _INERTIA), limit)
    least = _num_worthwhile(rate, price * (1.0 + _INERTIA), limit)
    return min(max(last, least), most)


def _num_worthwhile(rate: float, price: float, limit: int) -> int:
    """How many tokens in a row earn more than their price."""
    count, chance = 0, rate
    while count < limit and chance > price:
        count += 1
        chance *= rate
    return count


def _is_round(row: LeaseRow) -> bool:
    return row.num_choices > 0 and len(row.new_ids) <= max(_MAX_NEW_IDS, row.num_choices + 1)
