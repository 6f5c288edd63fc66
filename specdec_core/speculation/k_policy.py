"""Interface of the K controller: how many tokens to draft and to check, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, partial
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol

from specdec_core.config import SpecMethod
from specdec_core.messages import GroupLease, GroupResult, ReplicaInfo
from specdec_core.speculation.drafter import Offer


class DraftLengthReason(IntEnum):
    """Reason for K, counted once per round that commits. It is a number so that a list can count
    it."""

    OFF = 0
    """The configuration drafts nothing."""
    REQUEST = 1
    """The request switches drafting off."""
    ENDING = 2
    """One token is left of the request's budget."""
    NOTHING_FOUND = 3
    """The local drafter, such as prompt lookup, had nothing to offer."""
    NO_DRAFT = 4
    """The target did not wait for the draft model. Either it is the first token, or no draft
    replica holds the sequence, or the draft has much to catch up with. A local drafter may have
    replaced the draft model."""
    QUEUE = 5
    """Draft replicas have no time for all rounds, so this one went without a proposal."""
    CONFIGURED = 6
    """A fixed K, or that of the schedule."""
    GOODPUT = 7
    """Chosen by the controller, because this K promises the most tokens per second."""
    PROBE = 8
    """Chosen by the controller to learn the cost of a pass or the quality of a draft model."""
    BUDGET = 9
    """The verification budget left some tokens out."""
    ROOM = 10
    """A replica has no KV blocks for more."""
    RESUME = 11
    """No drafting: the round checked tokens that the client had brought back."""

    @property
    def label(self) -> str:
        """Name of the reason for people and metrics."""
        return self.name.lower()


class Decision(NamedTuple):
    """A number of tokens, and the reason for it."""

    k: int
    reason: DraftLengthReason


decision = cache(Decision)
"""Returns one shared object for all equal decisions, because one is made per row and pass."""


DRAFT_REPLICA = SpecMethod.DRAFT_MODEL.value
"""Source of the tokens that a draft replica proposes. Every other source is a local drafter, by its
name."""


@dataclass(eq=False, slots=True)
class AcceptanceRate:
    """Recent chance that a drafted token is accepted once those before it were.

    A trial is a drafted token that was accepted, or the one at which a proposal broke.
    """

    half_life: float
    """Trials after which a trial counts half."""
    num_accepted: float = 0.0
    num_trials: float = 0.0

    def note(self, num_accepted: int, num_trials: int) -> None:
        kept = 0.5 ** (num_trials / self.half_life)
        self.num_accepted = self.num_accepted * kept + num_accepted
        self.num_trials = self.num_trials * kept + num_trials

    def estimate(self, prior: float, weight: float) -> float:
        """Return the estimated chance, with `prior` counted as `weight` trials."""
        return (self.num_accepted + weight * prior) / (self.num_trials + weight)

    def forget(self, most: float) -> None:
        """Reduce the weight of what was seen so far to at most `most` trials."""
        kept = min(most / self.num_trials, 1.0) if self.num_trials else 1.0
        self.num_accepted *= kept
        self.num_trials *= kept


_RECENT = 32.0
"""Half-life of one sequence's trials. A text changes its nature within a few hundred tokens."""
_recent_rates = partial(defaultdict[str, AcceptanceRate], partial(AcceptanceRate, _RECENT))


@cache
def _step(num_drafted: int, num_accepted: int) -> tuple[int, int]:
    """Return one shared object for all equal rounds, because histories of live sequences are
    long."""
    return num_drafted, num_accepted


@dataclass(eq=False, slots=True)
class AcceptanceHistory:
    """Results of one sequence's rounds so far."""

    is_drawn: bool = False
    """Whether its tokens are sampled, at a temperature above 0."""
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(drafted, accepted) of every round with a proposal, in order."""
    rates: defaultdict[str, AcceptanceRate] = field(default_factory=_recent_rates)
    """Acceptance rates by source, or source and kind (AcceptanceEstimator.key), for policies that
    learn. Only those seen so far are present."""

    def record(self, num_drafted: int, num_accepted: int) -> None:
        self.num_rounds += 1
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if num_drafted:
            self.steps.append(_step(num_drafted, num_accepted))


class OfferedRow(NamedTuple):
    """A row of a new batch, and the drafted tokens that it offers for checking."""

    history: AcceptanceHistory
    source: str
    """Local drafter or DRAFT_REPLICA."""
    offer: Offer
    num_left: int = 0
    """Tokens that the sequence may still emit."""


class Terms(NamedTuple):
    """Limits of a local drafter's offers to the sequences of one target."""

    k: int
    """Maximum tokens per sequence. 0: the drafter is not asked."""
    reason: DraftLengthReason
    least_chance: float | None = None
    """If set, the tokens of a source are judged alike, without chances and kinds. An offer whose
    first token has a lower chance is left out."""


class KPolicy(Protocol):
    """A policy that decides how many tokens to draft and to check, and says why.

    Draft steps are decided once per round, for the next batch of a draft replica. Checked tokens
    are decided once per batch of a target, when its rows are known.
    """

    @property
    def is_selective(self) -> bool:
        """Whether `num_checked` may leave drafted tokens out. If not, it is not called."""
        ...

    @property
    def figures(self) -> Mapping[str, float]:
        """Present estimates of the policy, for monitoring."""
        ...

    @property
    def is_draft_short(self) -> bool:
        """Whether draft replicas lack time for all rounds. If so, rows that wait for a draft may
        skip drafting."""
        ...

    def welcome(self, info: ReplicaInfo) -> None:
        """Note that a replica has registered."""
        ...

    def terms(self, source: str, num_live: int) -> Terms:
        """Return what the local drafter `source` may offer. `num_live` sequences share the target.

        Called before the drafter is asked, once for all sequences of a target.
        """
        ...

    def draft_steps(
        self,
        history: AcceptanceHistory,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        local: OfferedRow | None = None,
    ) -> Decision:
        """Return how many tokens to ask of a draft replica for the next round, at most `limit`.

        `num_live` sequences share the sequence's target. `targets_per_draft` targets share each
        draft replica. With 0 steps, `local` is proposed, if a local drafter has offered it.
        """
        ...

    def num_checked(self, rows: Sequence[OfferedRow], tile_rows: int) -> list[Decision]:
        """Return how many drafted tokens of each row the batch checks, from their beginning.

        Called for batches with drafted tokens. `tile_rows`: see ReplicaInfo.
        """
        ...

    def learn(
        self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Sequence[int]
    ) -> None:
        """Learn from what `source` offered and the target's later choice.

        The target may have seen only a part of the offer, or nothing.
        """
        ...

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        """Learn what a group committed and what it cost. `seconds` includes the host's part."""
        ...


class _Configured:
    """A policy that learns nothing. It checks every token that it lets drafters offer."""

    is_selective: ClassVar[bool] = False
    is_draft_short: ClassVar[bool] = False
    figures: ClassVar[Mapping[str, float]] = MappingProxyType({})

    def welcome(self, info: ReplicaInfo) -> None:
        pass

    def k_of(self, num_live: int) -> int:
        """Return K while `num_live` sequences share a target."""
        raise NotImplementedError

    def terms(self, source: str, num_live: int) -> Terms:
        return Terms(self.k_of(num_live), DraftLengthReason.CONFIGURED)

    def draft_steps(
        self,
        history: AcceptanceHistory,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        local: OfferedRow | None = None,
    ) -> Decision:
        k = 0 if local is not None else min(self.k_of(num_live), limit)
        return decision(k, DraftLengthReason.CONFIGURED)

    def num_checked(self, rows: Sequence[OfferedRow], tile_rows: int) -> list[Decision]:
        reason = DraftLengthReason.CONFIGURED
        return [decision(len(row.offer.tokens), reason) for row in rows]

    def learn(
        self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Sequence[int]
    ) -> None:
        pass

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FixedPolicy(_Configured):
    """A policy with a constant K."""

    k: int

    def k_of(self, num_live: int) -> int:
        return self.k


@dataclass(frozen=True, slots=True)
class SchedulePolicy(_Configured):
    """K by the number of live sequences, like vLLM's num_speculative_tokens_per_batch_size."""

    schedule: tuple[tuple[int, int, int], ...]
    """Ranges (first, last, K) of live sequences. K is 0 outside all ranges."""

    def k_of(self, num_live: int) -> int:
        ks = (k for first, last, k in self.schedule if first <= num_live <= last)
        return next(ks, 0)
