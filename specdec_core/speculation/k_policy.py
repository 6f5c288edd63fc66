"""Interface of the K controller: how many tokens to draft and to check, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import NamedTuple, Protocol

from specdec_core.config import SpecMethod
from specdec_core.messages import GroupLease, GroupResult, ReplicaInfo
from specdec_core.speculation.acceptance import AcceptanceHistory
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
    are decided once per batch of a target, when its rows are known. A policy that derives from
    this class and defines `terms` and `draft_steps` alone learns nothing, and checks all tokens.
    """

    @property
    def is_selective(self) -> bool:
        """Whether `num_checked` may leave drafted tokens out. If not, it is not called."""
        return False

    @property
    def figures(self) -> Mapping[str, float]:
        """Present estimates of the policy, for monitoring."""
        return {}

    @property
    def is_draft_short(self) -> bool:
        """Whether draft replicas lack time for all rounds. If so, rows that wait for a draft may
        skip drafting."""
        return False

    def welcome(self, info: ReplicaInfo) -> None:
        """Note that a replica has registered."""
        return

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
        reason = DraftLengthReason.CONFIGURED
        return [decision(len(row.offer.tokens), reason) for row in rows]

    def learn(
        self, history: AcceptanceHistory, source: str, offer: Offer, chosen: Sequence[int]
    ) -> None:
        """Learn from what `source` offered and the target's later choice.

        The target may have seen only a part of the offer, or nothing.
        """
        return

    def observe(self, lease: GroupLease, result: GroupResult, seconds: float) -> None:
        """Learn what a group committed and what it cost. `seconds` includes the host's part."""
        return
