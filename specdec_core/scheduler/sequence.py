"""One sequence as the scheduler sees it: its IDs, where its KV cache is, and its leased rows.

Status and ownership are derived from these facts and never stored separately.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import DRAFT, EMPTY_HASH, LeaseRow, Role, hashes_behind
from specdec_core.request import FinishReason, Request, RequestStats
from specdec_core.sampling_params import SamplingRules
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import Drafter, Offer
from specdec_core.speculation.k_policy import DraftLengthReason

PRIORITY_STEP_S = 30.0
"""Seconds of earlier or later arrival that one step of priority is worth. The credit is fixed, so a
request of low priority is finally served before every later one, and none starves."""
BACKGROUND_RANK = float("inf")
"""Rank of background sequences: after every client's request, however late that arrives."""
_FEW_STOP_IDS = 64
Rank = tuple[float, int]


class ServedTokens(Protocol):
    """Tokens that a client was served, for fair scheduling."""

    num_served: int


class SequenceStatus(StrEnum):
    WAITING = "waiting"
    """No target replica holds the sequence."""
    READY = "ready"
    """There is no proposal yet. The sequence may be drafted, or decoded without speculation."""
    DRAFTING = "drafting"
    PROPOSED = "proposed"
    VERIFYING = "verifying"
    CATCHING_UP = "catching_up"
    """The sequence is leased to its target for a chunk that commits nothing."""
    FINISHED = "finished"


# Read once: to name a member of an enumeration takes as long as a call.
_FINISHED, _WAITING = SequenceStatus.FINISHED, SequenceStatus.WAITING
_READY, _PROPOSED = SequenceStatus.READY, SequenceStatus.PROPOSED
_DRAFTING, _VERIFYING = SequenceStatus.DRAFTING, SequenceStatus.VERIFYING
_CATCHING_UP = SequenceStatus.CATCHING_UP


@dataclass(eq=False, slots=True)
class KVReservation:
    """A sequence's slot on one replica, kept while both live."""

    replica_id: str
    cached_len: int = 0
    """Positions that the scheduler believes valid: of the IDs and, on a draft, of its proposal."""
    reserved_len: int = 0
    """Positions whose blocks are accounted for, at least those that the replica holds."""
    num_blocks: int = 0
    """Blocks for `reserved_len` positions."""
    has_rules: bool = False
    lease_id: int | None = None
    reason: DraftLengthReason = DraftLengthReason.OFF
    """Reason for the number of drafted tokens of the row."""
    row: LeaseRow | None = None
    """Row that is leased out, if any. A draft's row without choices is a side lease and owns
    nothing."""


@dataclass(eq=False, slots=True)
class Round:
    """The way to get the next token, decided once per committed length."""

    committed_len: int
    limit: int
    """Maximum drafted tokens of this round."""
    proposal: Offer | None = None
    """Proposed tokens; None if the draft model has not answered."""
    reason: DraftLengthReason = DraftLengthReason.OFF
    """Reason for the number of proposed tokens. A row that does not wait for the draft has its own
    reason."""
    num_draft_tokens: int = 0
    """Tokens that a local drafter proposed or that a draft replica is asked for; 0 decodes without
    speculation."""
    local: Offer | None = None
    """Offer of the local drafter, whether or not it was proposed; None if it was not asked."""
    is_drafted: bool = False
    """Whether the proposal is the draft model's."""

    def take_draft(self, tokens: tuple[int, ...], reason: DraftLengthReason) -> None:
        """Propose what a draft replica has drafted. `reason`: why it drafts no more."""
        self.proposal, self.reason, self.is_drafted = Offer(tokens), reason, True


class Drafting(NamedTuple):
    """Drafting settings that result from a request and the configuration."""

    local: Drafter | None
    """Local drafter that comes first."""
    stand_in: Drafter | None
    """Local drafter that replaces a missing draft replica; None if no draft replica is asked."""
    max_tokens: int
    """Maximum drafted tokens of one round; 0 decodes without speculation."""
    reason: DraftLengthReason
    """Reason for a K of 0 that the policy is not asked about."""


@dataclass(eq=False, slots=True)
class Sequence:
    """A live request, compared by identity: a later attempt of the request is another sequence."""

    sequence_id: int
    request: Request
    arrived_at: float
    ids: array[int] = field(init=False)
    """Token IDs, at eight bytes each. A list with its integers takes 40."""
    prefix_hashes: array[int] = field(init=False)
    """Hash of ids[:i] at index i."""
    rank: Rank = field(init=False)
    """Order among its client's requests. A lower rank is admitted sooner and preempted later."""
    # Copied from the request, so that a round need not touch it: with 10,000 sequences it is cold.
    request_id: str = field(init=False)
    num_prompt: int = field(init=False)
    max_len: int = field(init=False)
    """Number of IDs at which the sequence's budget is spent."""
    resume_len: int = field(init=False)
    """Number of IDs that the client has, prompt included. Those beyond `ids` are unchecked."""
    stop_ids: frozenset[int] = field(init=False)
    has_logprobs: bool = field(init=False)
    is_background: bool = field(init=False)
    target: KVReservation | None = None
    draft: KVReservation | None = None
    round: Round | None = None
    drafter: Drafter | None = None
    """Local drafter that has begun with it. The sequence is its Row."""
    draft_state: object = None
    """See drafter.Row."""
    ready_since: float = 0.0
    """Time at which the sequence was last given back, or admitted."""
    admitted_at: float | None = None
    """Time of the first admission."""
    account: ServedTokens = field(init=False, repr=False)
    """Account of its client, set when it begins to wait. A background sequence has none."""
    num_preemptions: int = 0
    drafting: Drafting | None = None
    """Drafting settings; None until they are first needed."""
    is_draftable: bool = True
    """False once a draft replica could not serve the sequence."""
    history: AcceptanceHistory = field(init=False)
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of the prompt from its second token on, kept until the first token is
    emitted with them."""
    num_cached_prompt: int = 0
    """Prompt tokens that were found cached before the first token was chosen."""
    finish_reason: FinishReason | None = None
    pinned_fingerprint: str = field(init=False)
    """Fingerprint of the exact targets that chose its tokens so far. If it is empty, any target may
    continue."""

    def __post_init__(self) -> None:
        self.pinned_fingerprint = self.request.pinned_fingerprint
        rank = self.arrived_at + self.request.priority * PRIORITY_STEP_S
        self.rank = BACKGROUND_RANK if self.request.is_background else rank, self.sequence_id
        self.request_id = self.request.request_id
        self.num_prompt = len(self.request.prompt_token_ids)
        self.max_len = self.request.max_len
        self.resume_len = self.num_prompt + len(self.request.resume_token_ids)
        stop_ids = self.request.stop_ids
        self.stop_ids = _shared(stop_ids) if len(stop_ids) <= _FEW_STOP_IDS else stop_ids
        self.has_logprobs = self.request.params.num_logprobs is not None
        self.is_background = self.request.is_background
        self.history = AcceptanceHistory(is_drawn=self.request.params.temperature > 0.0)
        self.ids = array("q")
        self.prefix_hashes = array("Q", [EMPTY_HASH])
        self.append(self.request.prompt_token_ids)
        self.append(self.request.emitted_token_ids)

    @property
    def num_emitted(self) -> int:
        return len(self.ids) - self.num_prompt

    @property
    def rules(self) -> SamplingRules:
        return self.request.rules

    @property
    def slot(self) -> int | None:
        """None: the KV slot is in a replica (see drafter.Row)."""
        return None

    def reservation(self, role: Role) -> KVReservation | None:
        """Return the sequence's slot on a replica of this role."""
        return self.draft if role is DRAFT else self.target

    @property
    def is_verifying(self) -> bool:
        """Whether the sequence is leased to its target, which will commit tokens."""
        return _chooses(self.target)

    @property
    def is_drafting(self) -> bool:
        """Whether the sequence is leased to its draft, which will propose."""
        return _chooses(self.draft)

    @property
    def is_caught_up(self) -> bool:
        """Whether the target lacks only the pending token."""
        return self.target is not None and 0 < self.target.cached_len >= len(self.ids) - 1

    def unchecked(self, most: int) -> tuple[int, ...]:
        """Return up to `most` next IDs that its client has and no target has chosen yet."""
        return self.request.resume_token_ids[self.num_emitted :][:most]

    def disagreement(self, tokens: tuple[int, ...]) -> str | None:
        """Return an error if the target's choice is not what its client has, or None."""
        pairs = zip(self.unchecked(len(tokens)), tokens, strict=False)
        for position, (given, chosen) in enumerate(pairs, start=self.num_emitted):
            if given != chosen:
                return (
                    f"resume: token id {given} at position {position} is not this request's: "
                    f"its answer has {chosen} there"
                )
        return None

    @property
    def is_scored(self) -> bool:
        """Whether, before the first token, the client waits for log-probabilities of its prompt."""
        asked = self.request.params.num_prompt_logprobs is not None
        return asked and self.num_prompt - 1 > len(self.prompt_logprobs)

    @property
    def status(self) -> SequenceStatus:
        if self.finish_reason is not None:
            return _FINISHED
        draft, target, current = self.draft, self.target, self.round
        if draft is not None and draft.row is not None and draft.row.num_choices > 0:
            return _DRAFTING
        if target is None:
            return _WAITING
        if target.row is not None:
            return _VERIFYING if target.row.num_choices > 0 else _CATCHING_UP
        if current is None or current.proposal is None:
            return _READY
        return _PROPOSED if current.committed_len == len(self.ids) else _READY

    @property
    def stats(self) -> RequestStats:
        admitted_at = self.arrived_at if self.admitted_at is None else self.admitted_at
        return RequestStats(
            num_rounds=self.history.num_rounds,
            num_drafted=self.history.num_drafted,
            num_accepted=self.history.num_accepted,
            steps=tuple(self.history.steps),
            queue_s=admitted_at - self.arrived_at,
            num_preemptions=self.num_preemptions,
            num_cached_tokens=self.num_cached_prompt,
        )

    def note_matched(self, base_len: int, num_matched: int) -> None:
        """Count prompt tokens found cached before the first token; a new start counts from 0."""
        if len(self.ids) == self.num_prompt:
            self.num_cached_prompt = num_matched + (self.num_cached_prompt if base_len else 0)

    def take_scores(self, base_len: int, prompt_logprobs: tuple[TokenLogprobs, ...]) -> None:
        """Add the log-probabilities of the tokens after position `base_len`.

        After a preemption known ones come again, and are skipped.
        """
        self.prompt_logprobs += prompt_logprobs[len(self.prompt_logprobs) - base_len :]

    def append(self, token_ids: tuple[int, ...]) -> None:
        """Commit tokens, which are never taken back."""
        self.ids.extend(token_ids)
        self.prefix_hashes.fromlist(hashes_behind(self.prefix_hashes[-1], token_ids))


@lru_cache(maxsize=1024)
def _shared(stop_ids: frozenset[int]) -> frozenset[int]:
    """Return one object for all equal sets, because each separate object is a cache miss.

    A large set, which a client made up, is not shared and goes with its sequence.
    """
    return stop_ids


def _chooses(reservation: KVReservation | None) -> bool:
    return (
        reservation is not None and reservation.row is not None and reservation.row.num_choices > 0
    )
