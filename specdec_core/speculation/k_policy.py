"""Interface of the K controller: how many tokens to draft for a sequence's next round, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cache
from typing import NamedTuple, Protocol

from specdec_core.messages import GroupLease, GroupResult, ReplicaInfo


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
    """Prompt lookup had nothing to offer."""
    NO_DRAFT = 4
    """The target did not wait for the draft model. Either it is the first token, or no draft
    replica holds the sequence, or the draft has much to catch up with. Prompt lookup may have
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


class DraftSource(StrEnum):
    """The source of drafted tokens: prompt lookup or a draft model."""

    LOOKUP = "lookup"
    MODEL = "model"


Source = DraftSource | int
"""Source of drafted tokens, or the kind of copied tokens (copy_acceptance)."""


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
    rates: dict[Source, AcceptanceRate] = field(default_factory=dict)
    """Acceptance rates by source, for policies that learn. Only sources seen so far are present."""

    def rate_of(self, source: Source) -> AcceptanceRate:
        """Return the rate of a source, in which the caller notes a trial."""
        own = self.rates.get(source)
        if own is None:
            own = self.rates[source] = AcceptanceRate(_RECENT)
        return own

    @property
    def histogram(self) -> list[int]:
        """Index j: rounds with a proposal that accepted j of its tokens."""
        accepted = [num_accepted for _, num_accepted in self.steps]
        return [accepted.count(j) for j in range(max(accepted, default=-1) + 1)]

    def record(self, num_drafted: int, num_accepted: int) -> None:
        self.num_rounds += 1
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if num_drafted:
            self.steps.append(_step(num_drafted, num_accepted))


class OfferedRow(NamedTuple):
    """The drafted tokens that one row of a new group offers for checking."""

    history: AcceptanceHistory
    drafter: DraftSource
    num_drafted: int
    num_left: int = 0
    """Tokens that the sequence may still emit."""
    num_agreed: int = 0
    """Length of the match before the proposal of prompt lookup, in tokens. 0: unknown, or no prompt
    lookup."""


class KPolicy(Protocol):
    """A policy that chooses K, once per sequence and round."""

    @property
    def is_selective(self) -> bool:
        """Whether `num_checked` may leave drafted tokens out. If not, it is not called."""
        ...

    @property
    def figures(self) -> Mapping[str, float]:
        """Present estimates of the policy, for monitoring."""
        ...

    @property
    def cause(self) -> DraftLengthReason:
        """Reason of the last decision."""
        ...

    @property
    def is_draft_short(self) -> bool:
        """Whether draft replicas lack time for all rounds. If so, rows that wait for a draft may
        skip drafting."""
        ...

    def may_look_up(self, num_live: int) -> bool:
        """Return whether prompt lookup is worth its time if `num_live` sequences share a target."""
        ...

    def goes_by_agreement(self, num_live: int) -> bool:
        """Return whether the number of matching tokens decides on the tokens of prompt lookup.

        `num_live` sequences share the target. If the result is False, proposals after a match of a
        single token are left out.
        """
        ...

    def welcome(self, info: ReplicaInfo) -> None:
        """Note that a replica has registered."""
        ...

    def num_draft_tokens(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        num_agreed: int = 0,
    ) -> int:
        """Return K for the next round, at most `limit`.

        `num_live` sequences share the sequence's target. `targets_per_draft` targets share each
        draft replica. `num_agreed`: see OfferedRow. The scheduler lowers K further if a replica
        has no room.
        """
        ...

    def num_checked(self, offers: Sequence[OfferedRow], tile_rows: int) -> list[int]:
        """Return how many drafted tokens of each row the group's pass checks, from their beginning.

        Called for groups with drafted tokens. `tile_rows`: see ReplicaInfo.
        """
        ...

    def learn(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        drafted: Sequence[int],
        chosen: Sequence[int],
        num_agreed: int = 0,
    ) -> None:
        """Learn from the tokens `drafted` by `drafter` and the target's later choice.

        The target may have seen only a part of `drafted`, or nothing.
        """
        ...

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        """Learn what a group committed and what it cost. `seconds` includes the host's part."""
        ...


class _Heedless:
    """A policy that learns nothing."""

    @property
    def is_selective(self) -> bool:
        return False

    @property
    def figures(self) -> Mapping[str, float]:
        return {}

    @property
    def cause(self) -> DraftLengthReason:
        return DraftLengthReason.CONFIGURED

    @property
    def is_draft_short(self) -> bool:
        return False

    def may_look_up(self, num_live: int) -> bool:
        return True

    def goes_by_agreement(self, num_live: int) -> bool:
        return True

    def welcome(self, info: ReplicaInfo) -> None:
        pass

    def num_checked(self, offers: Sequence[OfferedRow], tile_rows: int) -> list[int]:
        return [offer.num_drafted for offer in offers]

    def learn(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        drafted: Sequence[int],
        chosen: Sequence[int],
        num_agreed: int = 0,
    ) -> None:
        pass

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FixedPolicy(_Heedless):
    """A policy with a constant K."""

    k: int

    def num_draft_tokens(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        num_agreed: int = 0,
    ) -> int:
        return min(self.k, limit)


@dataclass(frozen=True, slots=True)
class SchedulePolicy(_Heedless):
    """K by the number of live sequences, like vLLM's num_speculative_tokens_per_batch_size."""

    schedule: tuple[tuple[int, int, int], ...]
    """Ranges (first, last, K) of live sequences. K is 0 outside all ranges."""

    def num_draft_tokens(
        self,
        history: AcceptanceHistory,
        drafter: DraftSource,
        limit: int,
        num_live: int,
        targets_per_draft: float = 1.0,
        num_agreed: int = 0,
    ) -> int:
        ks = (k for first, last, k in self.schedule if first <= num_live <= last)
        return min(next(ks, 0), limit)
