"""How many tokens to draft for a sequence's next round: the seam of the K controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import NamedTuple, Protocol

from specdec_core.messages import GroupLease, GroupResult, ReplicaInfo
from specdec_core.speculation.k_cause import DraftLengthReason


class DraftSource(StrEnum):
    """Whose tokens they are."""

    LOOKUP = "lookup"
    MODEL = "model"


Source = DraftSource | int
"""Of drafted tokens: who made them, or which kind of copied ones they are (copy_belief)."""


@dataclass(eq=False, slots=True)
class AcceptanceRate:
    """The chance that a drafted token is accepted once those before it were, of late.

    A trial is a drafted token that was accepted, or the one at which a proposal broke.
    """

    half_life: float
    """Trials after which one counts half."""
    num_accepted: float = 0.0
    num_trials: float = 0.0

    def note(self, num_accepted: int, num_trials: int) -> None:
        kept = 0.5 ** (num_trials / self.half_life)
        self.num_accepted = self.num_accepted * kept + num_accepted
        self.num_trials = self.num_trials * kept + num_trials

    def estimate(self, prior: float, weight: float) -> float:
        """`prior` counts as so many trials."""
        return (self.num_accepted + weight * prior) / (self.num_trials + weight)

    def forget(self, most: float) -> None:
        """Let what was seen so far count for `most` trials at most."""
        kept = min(most / self.num_trials, 1.0) if self.num_trials else 1.0
        self.num_accepted *= kept
        self.num_trials *= kept


_RECENT = 32.0
"""Half-life of one sequence's trials: a text changes its nature within a few hundred tokens."""


@cache
def _step(num_drafted: int, num_accepted: int) -> tuple[int, int]:
    """One object for all rounds alike: histories of live sequences are long."""
    return num_drafted, num_accepted


@dataclass(eq=False, slots=True)
class AcceptanceHistory:
    """What came of one sequence's rounds so far."""

    is_drawn: bool = False
    """Its tokens are, at a temperature above 0."""
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(drafted, accepted) of every round with a proposal, in order."""
    rates: dict[Source, AcceptanceRate] = field(default_factory=dict)
    """For policies that learn; of sources that were heard."""

    def rate_of(self, source: Source) -> AcceptanceRate:
        """To note a trial in."""
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


class Offer(NamedTuple):
    """What one row of a group that is being formed would have checked."""

    history: AcceptanceHistory
    drafter: DraftSource
    num_drafted: int
    num_left: int = 0
    """Tokens that it may still emit."""
    num_agreed: int = 0
    """Of prompt lookup: tokens before those drafted that equal the ones before what was copied.
    0: nothing is known of them."""


class KPolicy(Protocol):
    """Chooses K, once per sequence and round."""

    @property
    def is_selective(self) -> bool:
        """Whether `num_checked` may leave drafted tokens out; if not, it is not asked."""
        ...

    @property
    def figures(self) -> Mapping[str, float]:
        """What it believes at present, for whoever watches."""
        ...

    @property
    def cause(self) -> DraftLengthReason:
        """Of what it has decided last."""
        ...

    @property
    def is_draft_short(self) -> bool:
        """Whether draft replicas have less time than they are asked for: rows that wait for one may
        go without."""
        ...

    def may_look_up(self, num_live: int) -> bool:
        """Whether prompt lookup is worth its time at present, where so many sequences share a
        target."""
        ...

    def goes_by_agreement(self, num_live: int) -> bool:
        """Whether what prompt lookup has found is judged by how many tokens before it agree, where
        so many sequences share a target. If not, what follows a single one is left out."""
        ...

    def welcome(self, info: ReplicaInfo) -> None:
        """A replica has registered."""
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
        """K for the next round, at most `limit`; `num_live` sequences share the sequence's
        target, and so many targets each draft replica. `num_agreed`: see Offer.

        The pool lowers it further where a replica has no room.
        """
        ...

    def num_checked(self, offers: Sequence[Offer], tile_rows: int) -> list[int]:
        """How many drafted tokens of each row the group's pass checks, from their beginning.

        Asked of groups with drafted tokens. `tile_rows`: see ReplicaInfo.
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
        """`drafter` offered `drafted`, of which the target saw a part or nothing; it then chose."""
        ...

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        """What a group committed, and what it cost: `seconds`, the host's part included."""
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

    def num_checked(self, offers: Sequence[Offer], tile_rows: int) -> list[int]:
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
    """The same K always."""

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
    """K by the number of live sequences, as vLLM's num_speculative_tokens_per_batch_size."""

    schedule: tuple[tuple[int, int, int], ...]
    """(first, last, K); 0 where none holds."""

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
