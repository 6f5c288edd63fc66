"""Goodput policy: choose the K that makes the most tokens per second.

The number of verified tokens is chosen when the group is formed. At that time, the size of the
group and the proposals of its rows are known. Local drafters therefore offer all that they have.
A draft model takes time for every token, and all sequences of its group share this time. Its
number of steps is chosen earlier, for groups like those that were seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter
from typing import ClassVar

from specdec_core.config import MAX_DRAFT_TOKENS
from specdec_core.messages import GroupLease, GroupResult, ReplicaInfo, Role, is_round
from specdec_core.speculation.acceptance import (
    FEW,
    AcceptanceByKind,
    AcceptanceEstimator,
    AcceptanceHistory,
    DrafterBackoff,
)
from specdec_core.speculation.draft_load import DraftLoad, DraftPlan
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.k_policy import (
    DRAFT_REPLICA,
    Decision,
    DraftLengthReason,
    OfferedRow,
    Terms,
    decision,
)
from specdec_core.speculation.pass_prices import GUESSED_DRAFTS, REPORTED_SIZES, PassPrices
from specdec_core.speculation.token_selection import (
    CandidateBatch,
    CandidateSize,
    DraftedRow,
    Exploration,
    best,
    chances_in_a_row,
    counts,
    expected_accepted,
    most_likely_first,
    num_worthwhile,
)

_INERTIA = 0.02
"""Relative gain that another number of draft steps must exceed before it is taken."""
_FIRST_INTERVAL, _LONGEST_INTERVAL = 32, 128
"""Target passes after which an unused draft model is tried again, for one token, if a good one
would pay. Each failed trial doubles this number, from the first value up to the second. A local
drafter needs no trial, because comparing what it would have proposed is free."""
_FIRST_LEASES = 4
"""Number of draft leases that run before their cost decides, if no replica reported step times. A
single lease may have met other work."""
_REMEMBERED = 8.0
"""Maximum number of trials that a draft model's past counts for when it is tried again after a
rest."""
_MOST_MISSES = 4
"""Number of consecutive groups whose drafted tokens were all discarded, after which the draft model
rests. The plan uses the average acceptance, and the group's own sequences may be worse."""
_GOOD = 0.9
_GOOD_WEIGHT = 4.0
"""Acceptance of a good draft model, and the number of trials that it counts for if a draft model
does well."""
_MODEL_MARGIN = 1.1
"""Factor on the tokens expected of a local offer. If a draft model brings more than this, less the
cost of its time, the round waits for it."""
_LEAST_CHANCE = 0.3
"""Minimum chance of an offer's first token for more than FEW sequences. Of prompt lookup, only what
follows a single equal token has less. In such batches it is never worth a row."""
_NOBODY = DraftLoad(1, 1, 1.0)
_GOODPUT, _PROBE = DraftLengthReason.GOODPUT, DraftLengthReason.PROBE


class _Source:
    """Acceptance and back-off of one source of drafted tokens."""

    def __init__(self, name: str) -> None:
        self.acceptance = AcceptanceEstimator(name)
        self.by_kind = AcceptanceByKind(name)
        """Acceptance of tokens that were offered with a chance."""
        self.backoff = DrafterBackoff()

    def learn_alike(self, history: AcceptanceHistory, num_accepted: int, num_trials: int) -> None:
        """Learn from tokens that were offered without chances."""
        if self.backoff.num_left:
            self.backoff.note_offer(num_accepted > 0, self.acceptance.of(history))
        self.acceptance.note(history, num_accepted, num_trials)


class _Sources(dict[str, _Source]):
    """Draft replicas, and the local drafters that were seen so far, by name."""

    def __missing__(self, name: str) -> _Source:
        self[name] = source = _Source(name)
        return source


@dataclass(eq=False, slots=True)
class GoodputPolicy:
    """A K policy that learns the cost of passes and the acceptance of drafts. Reads no clock."""

    is_selective: ClassVar[bool] = True
    max_group_size: int
    verify: PassPrices = field(default_factory=PassPrices)
    """Cost model of a target pass, in seconds."""
    draft: PassPrices = field(default_factory=partial(PassPrices, expected=GUESSED_DRAFTS))
    """Cost model of a draft's lease, in seconds. Tokens of a sequence are its draft steps."""
    last_chosen: CandidateSize | None = None
    """Size chosen for the last group with drafted tokens."""
    last_steps: int = 0
    """Number of draft steps before the last target pass; 0 if the draft model was not used."""
    num_passes_unused: int = 0
    """Target passes since the draft model was last used."""
    trial_interval: int = _FIRST_INTERVAL
    """Target passes after which an unused draft model is tried again."""
    is_promising: bool = False
    """Whether more than half of the tokens checked in the last pass after drafting were
    accepted."""
    _has_draft: bool = False
    """Whether a draft replica has ever registered. Until its tokens were seen, they are expected to
    be accepted like those of any model. Otherwise a local drafter that always offers tokens would
    keep the draft model unused."""
    _num_misses: int = 0
    """Number of last consecutive groups with drafting of which no drafted token was checked."""
    _sources: _Sources = field(
        default_factory=lambda: _Sources({DRAFT_REPLICA: _Source(DRAFT_REPLICA)})
    )
    _exploration: Exploration = field(default_factory=Exploration)
    _steps_since: int = 0
    _planned: dict[DraftLoad, list[DraftPlan]] = field(default_factory=dict)
    """Plans of the next round by load, each list indexed by the number of steps from 0 on."""
    _pays_if_good: dict[tuple[DraftLoad, int], bool] = field(default_factory=dict)
    """(load, limit) -> whether a good draft model would pay at the costs known now."""
    _last_load: DraftLoad = _NOBODY
    """Load of the last request for a draft model's K."""
    _most_steps: int = 0
    """Maximum limit of draft steps that any request had so far."""

    @property
    def is_draft_short(self) -> bool:
        is_known = self._most_steps > 0 and self._knows_costs
        return is_known and self._plan(self._last_load, self._most_steps).drafted_share < 1.0

    @property
    def figures(self) -> dict[str, float]:
        """Return the acceptance, the last choice, and the cost of a drafted row."""
        figures = {f"acceptance_{name}": s.acceptance.common for name, s in self._sources.items()}
        figures["last_steps"] = self.last_steps
        if self.last_chosen is not None:
            figures["last_rows"] = self.last_chosen.num_rows
            figures["promised_tokens_per_second"] = self.last_chosen.tokens_per_second
        if self.verify.is_known:
            for size in REPORTED_SIZES:
                figures[f"drafted_row_share_{size}"] = self.verify.row_share(size)
        return figures

    def welcome(self, info: ReplicaInfo) -> None:
        """Take the limits and step times of a replica that registers.

        Several replicas of a role count as one, with the smallest group size and the step times
        that were reported first.
        """
        if info.role is Role.TARGET:
            self.verify.tile_rows = info.tile_rows
            self.max_group_size = min(self.max_group_size, info.max_num_seqs or self.max_group_size)
            self.verify.expect(info.step_times)
        else:
            self._has_draft = True
            self.draft.expect(info.step_times)
        self._planned.clear()
        self._pays_if_good.clear()

    def terms(self, source: str, num_live: int) -> Terms:
        """Return no limit, but 0 while the drafter rests."""
        rests = not self._sources[source].backoff.allows(min(num_live, self.max_group_size))
        # For more sequences, distinguishing kinds of tokens takes longer than it gains.
        least_chance = None if num_live <= FEW else _LEAST_CHANCE
        return Terms(0 if rests else MAX_DRAFT_TOKENS, _GOODPUT, least_chance)

    def draft_steps(
        self,
        history: AcceptanceHistory,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        local: OfferedRow | None = None,
    ) -> Decision:
        load = DraftLoad(num_live, self.max_group_size, targets_per_draft)
        if local is not None and not self._prefers_model(local, load):
            return decision(0, _GOODPUT)
        if not self._knows_costs:
            return decision(limit, _PROBE)
        self._last_load = load
        self._most_steps = max(self._most_steps, limit)
        plan = self._plan(load, limit)
        if plan.steps:
            self.trial_interval = _FIRST_INTERVAL
        elif self._is_trial_due(load, limit):
            return decision(min(1, limit), _PROBE)
        return decision(min(self._num_steps(history, plan, load.group_size), limit), _GOODPUT)

    def num_checked(self, rows: Sequence[OfferedRow], tile_rows: int) -> list[Decision]:
        self.verify.tile_rows = tile_rows
        lengths, reason = [0] * len(rows), _GOODPUT
        runs = []
        for number, row in enumerate(rows):
            if row.offer.tokens:
                runs.append(DraftedRow(number, self._chances(row), row.num_left))
        if runs:
            ranked, chances = most_likely_first(runs)
            num_kept, reason = self._choose(rows, chances)
            for number in ranked[:num_kept]:
                lengths[number] += 1
        return [decision(length, reason) for length in lengths]

    def learn(
        self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Sequence[int]
    ) -> None:
        num_accepted = 0
        for ours, own in zip(offer.tokens, chosen, strict=False):
            if ours != own:
                break
            num_accepted += 1
        num_trials = min(num_accepted + 1, len(offer.tokens), len(chosen))
        known = self._sources[source]
        if offer.chances:
            known.by_kind.note(history, offer, num_accepted, num_trials)
            known.acceptance.seen.note(num_accepted, num_trials)
        else:
            known.learn_alike(history, num_accepted, num_trials)

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        is_timed = seconds > 0.0 and all(map(is_round, lease.rows))
        self._planned.clear()
        self._pays_if_good.clear()
        if lease.role is Role.DRAFT:
            self._observe_draft(lease, seconds if is_timed else None)
        elif is_timed:
            self._observe_target(lease, result, seconds)

    def _observe_draft(self, lease: GroupLease, seconds: float | None) -> None:
        """Note a draft's lease. `seconds` is None if its time is not that of a round."""
        lengths = [row.num_choices for row in lease.rows]
        self._steps_since += max(lengths)
        if seconds is not None:
            cached = sum(row.base_len for row in lease.rows) / len(lease.rows)
            self.draft.observe(*_drafting_size(lengths), seconds, cached)

    def _observe_target(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        num_rows = num_cached = 0
        for row in lease.rows:
            num_rows += len(row.new_ids) + len(row.proposal)
            num_cached += row.base_len
        size = len(lease.rows)
        self.verify.observe(size, num_rows, seconds, num_cached / size)
        for source in self._sources.values():
            source.backoff.note_pass()
        self.last_steps, self._steps_since = self._steps_since, 0
        if self.last_steps:
            self._observe_use(lease, result)
        else:
            self.num_passes_unused, self.is_promising = self.num_passes_unused + 1, False

    def _observe_use(self, lease: GroupLease, result: GroupResult) -> None:
        """Note a target pass after the draft model was used."""
        num_drafted = sum(len(row.proposal) for row in lease.rows)
        num_accepted = sum(row.num_accepted for row in result.rows)
        if self.num_passes_unused >= self.trial_interval:
            self.trial_interval = min(2 * self.trial_interval, _LONGEST_INTERVAL)
            self._by_model.forget(_REMEMBERED)
        self.num_passes_unused = 0
        self.is_promising = 2 * num_accepted > num_drafted

    @property
    def _by_model(self) -> AcceptanceEstimator:
        """Acceptance of the tokens of draft replicas."""
        return self._sources[DRAFT_REPLICA].acceptance

    def _chances(self, row: OfferedRow) -> Sequence[float]:
        """Return, for each drafted token, the chance that it and all before it are accepted."""
        source, offer = self._sources[row.source], row.offer
        if offer.chances:
            return source.by_kind.of_run(row.history, offer)
        return chances_in_a_row(source.acceptance.of(row.history), len(offer.tokens))

    def _choose(self, rows: Sequence[OfferedRow], chances: Sequence[float]) -> Decision:
        """Return how many of the most likely tokens the batch checks."""
        drafted = [row for row in rows if row.offer.tokens]
        by_model = [len(row.offer.tokens) for row in drafted if row.source == DRAFT_REPLICA]
        if by_model and self._is_trial(max(by_model)):
            self._num_misses = 0
            return Decision(len(chances), _PROBE)
        drafting_s = self._drafting_s(by_model) if by_model else 0.0
        expected, num_undrafted = list(accumulate(chances, initial=0.0)), len(rows) - len(drafted)
        sizes = counts(CandidateBatch(len(rows), expected, drafting_s, num_undrafted), self.verify)
        best_one = best(sizes)
        self.last_chosen = chosen = self._exploration.chosen(sizes, best_one)
        reason = _GOODPUT if chosen is best_one else _PROBE
        if reason is _GOODPUT:
            for name in {row.source for row in drafted} - {DRAFT_REPLICA}:
                self._sources[name].backoff.note_choice(len(rows), chosen.num_kept)
        if drafting_s:
            self._num_misses = 0 if chosen.num_kept else self._num_misses + 1
        return Decision(chosen.num_kept, reason)

    def _is_trial(self, steps: int) -> bool:
        """Return whether the draft model was asked for one token only to see how good it is."""
        return steps == 1 and self._knows_costs and self._plan(self._last_load, 1).steps == 0

    def _drafting_s(self, lengths: Sequence[int]) -> float:
        """Return the seconds that a draft took for these rows, 0 while its cost is unknown."""
        return self.draft.price(*_drafting_size(lengths)).seconds if self._knows_costs else 0.0

    def _num_steps(self, history: AcceptanceHistory, plan: DraftPlan, size: int) -> int:
        """Return how many of the plan's steps the sequence takes part in, in a group of `size`."""
        half = -(-size // 2)
        added_s = self._lease_s(plan.steps, size) - self._lease_s(plan.steps, half)
        price = added_s / max(plan.steps * (size - half), 1) * plan.tokens_per_second
        return num_worthwhile(self._by_model.of(history), price, plan.steps)

    def _prefers_model(self, local: OfferedRow, load: DraftLoad) -> bool:
        """Return whether the draft model is expected to bring more than the local offer."""
        if not (self._has_draft or self._by_model.seen.num_trials):
            return False
        by_model = self._tokens_by_model(local.history, len(local.offer.tokens), load)
        return by_model > _MODEL_MARGIN * sum(self._chances(local))

    def _tokens_by_model(
        self, history: AcceptanceHistory, num_offered: int, load: DraftLoad
    ) -> float:
        """Return the tokens expected of a draft model, less those that its time would make."""
        if not self._knows_costs:
            return expected_accepted(self._by_model.of(history), num_offered)
        size, plan = load.group_size, self._plan(load, self._most_steps)
        drafting_s = self._lease_s(plan.steps, size)
        exposed_s = load.exposed_s(drafting_s, self.verify.price(size, size).seconds)
        price = exposed_s / size * plan.tokens_per_second
        steps = self._num_steps(history, plan, size)
        return expected_accepted(self._by_model.of(history), steps) - price

    def _is_trial_due(self, load: DraftLoad, limit: int) -> bool:
        """Return whether the draft model is asked although it is not expected to pay.

        This is the case after a rest, and again while the draft model does well.
        """
        is_due = self.num_passes_unused >= self.trial_interval
        if not (self.is_promising or is_due):
            return False
        key = load, limit
        if key not in self._pays_if_good:
            recent = self._by_model.seen.estimate(_GOOD, _GOOD_WEIGHT)
            rate = _GOOD if is_due else recent
            self._pays_if_good[key] = _most(self._promises(load, limit, rate)).steps > 0
        return self._pays_if_good[key]

    @property
    def _knows_costs(self) -> bool:
        """Whether the costs of rounds with a draft model are known."""
        is_draft_measured = self.draft.was_timed or self.draft.num_seen >= _FIRST_LEASES
        return is_draft_measured and self.verify.is_known

    def _plan(self, load: DraftLoad, limit: int) -> DraftPlan:
        plans = self._planned.setdefault(load, [])
        if len(plans) <= limit:
            plans[:] = self._promises(load, limit, self._by_model.common)
        most = 0 if self._num_misses >= _MOST_MISSES else limit
        return _most(plans[: most + 1])

    def _promises(self, load: DraftLoad, limit: int, rate: float) -> list[DraftPlan]:
        """Return the plans of the next round by their steps, 0 to `limit`.

        `rate` is the assumed acceptance of drafted tokens. If all tokens of larger plans together
        could not pay for one more step, the plan without steps replaces those plans.
        """
        size = load.group_size
        plain_s = self.verify.price(size, size).seconds
        exposed_s = [load.exposed_s(self._lease_s(k, size), plain_s) for k in range(limit + 2)]
        chances = chances_in_a_row(rate, limit)
        expected = list(accumulate(chain.from_iterable([[p] * size for p in chances]), initial=0.0))
        plans: list[DraftPlan] = []
        for k in range(limit + 1):
            plans.append(self._promised(load, k, expected[: k * size + 1]))
            step_s = exposed_s[k + 1] - exposed_s[k]
            price = _most(plans).tokens_per_second * step_s
            if k >= self.last_steps and size * sum(chances[k:]) <= price:
                break
        return plans + plans[:1] * (limit + 1 - len(plans))

    def _lease_s(self, steps: int, size: int) -> float:
        """Return the seconds of a draft's lease of `steps` tokens for each of `size` sequences."""
        return self.draft.price(size, steps * size).seconds if steps else 0.0

    def _promised(self, load: DraftLoad, k: int, expected: Sequence[float]) -> DraftPlan:
        """Return the plan for `k` drafted tokens per sequence, of which the best are checked.

        Groups draft only as far as the drafts have time.
        """
        size = load.group_size
        plain_s, drafting_s = self.verify.price(size, size).seconds, self._lease_s(k, size)
        exposed_s = load.exposed_s(drafting_s, plain_s)
        chosen = best(counts(CandidateBatch(size, expected, exposed_s), self.verify))
        round_s = exposed_s + self.verify.price(size, chosen.num_rows).seconds
        share = load.drafted_share(drafting_s, round_s, plain_s)
        tokens = share * chosen.tokens_per_second * round_s + (1.0 - share) * size
        seconds = share * round_s + (1.0 - share) * plain_s
        is_kept = k == self.last_steps and chosen.num_kept >= k
        return DraftPlan(k, tokens / seconds * (1.0 + _INERTIA * is_kept), share)


def _most(plans: Sequence[DraftPlan]) -> DraftPlan:
    return max(plans, key=attrgetter("tokens_per_second"))


def _drafting_size(lengths: Sequence[int]) -> tuple[int, int]:
    """Return the sequences that take part in a lease's draft steps on average, and their tokens."""
    steps = max(lengths)
    num_sequences = round(sum(lengths) / steps)
    return num_sequences, num_sequences * steps
