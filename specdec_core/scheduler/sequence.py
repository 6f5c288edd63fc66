"""One sequence as the pool sees it: its ids, where its KV is, and what is out for it.

Status and ownership are derived from these facts and never stored beside them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import EMPTY_HASH, LeaseRow, Role, hashes_behind
from specdec_core.request import FinishReason, Request, RequestStats
from specdec_core.speculation.k_cause import DraftLengthReason
from specdec_core.speculation.k_policy import AcceptanceHistory
from specdec_core.speculation.ngram import NgramIndex

PRIORITY_STEP_S = 30.0
"""One step of priority counts as much as having arrived this much earlier or later. Because the
credit is fixed, a request of low priority overtakes every later one in the end: none starves."""
BACKGROUND_RANK = float("inf")
"""Behind every client's request, however late that comes."""
_FEW_STOP_IDS = 64
_DRAFT = Role.DRAFT  # to name the member of an enumeration takes as long as a call
Rank = tuple[float, int]


class ServedTokens(Protocol):
    """Tokens that a client was served, for fair scheduling."""

    num_served: int


class SequenceStatus(StrEnum):
    WAITING = "waiting"
    """No target replica holds it."""
    READY = "ready"
    """No proposal yet; it may be drafted or verified plainly."""
    DRAFTING = "drafting"
    PROPOSED = "proposed"
    VERIFYING = "verifying"
    CATCHING_UP = "catching_up"
    """Leased to its target for a chunk that commits nothing."""
    FINISHED = "finished"


_FINISHED, _WAITING = SequenceStatus.FINISHED, SequenceStatus.WAITING
_READY, _PROPOSED = SequenceStatus.READY, SequenceStatus.PROPOSED
_AT_DRAFT, _VERIFYING = SequenceStatus.DRAFTING, SequenceStatus.VERIFYING
_CATCHING_UP = SequenceStatus.CATCHING_UP  # as _DRAFT: a simulation asks for them all the time


@dataclass(eq=False, slots=True)
class KVReservation:
    """A sequence's place on one replica, kept while both live."""

    replica_id: str
    cached_len: int = 0
    """Positions that the pool believes valid there: of the ids and, on a draft, its proposal."""
    reserved_len: int = 0
    """Positions whose blocks are accounted for: at least what the replica holds."""
    has_rules: bool = False
    lease_id: int | None = None
    row: LeaseRow | None = None
    """What is leased out. A draft's row without choices is a side lease: it owns nothing."""


@dataclass(eq=False, slots=True)
class Round:
    """How the next token is come by, decided once per committed length."""

    committed_len: int
    num_draft_tokens: int
    """K of this round; 0 decodes plainly."""
    proposal: tuple[int, ...] | None
    """None: the draft model has not been heard."""
    found: tuple[int, ...] = ()
    """What prompt lookup offered, proposed or not."""
    is_drafted: bool = False
    """The proposal is the draft model's."""
    num_agreed: int = 0
    """Tokens before `found` that equal those before what it was copied from."""
    cause: DraftLengthReason = DraftLengthReason.OFF
    """Of its K, while the draft model is not passed over."""


class Drafting(NamedTuple):
    """What a request and the configuration together say of drafting."""

    looks_up: bool
    """Prompt lookup comes first."""
    asks_model: bool
    max_tokens: int
    """Of one round; 0 decodes plainly."""
    cause: DraftLengthReason
    """The reason for a K of 0 that the policy is not asked about."""


@dataclass(eq=False, slots=True)
class Sequence:
    """A live request. Identity matters: a later attempt of the same request is another one."""

    sequence_id: int
    request: Request
    arrived_at: float
    ids: array[int] = field(init=False)
    """Eight bytes for each: a list with its integers takes 40."""
    prefix_hashes: array[int] = field(init=False)
    """Index i: hash of ids[:i]."""
    rank: Rank = field(init=False)
    """The lower, the sooner admitted of its client's, and the later preempted."""
    # Of the request, which a round therefore need not touch: with 10,000 sequences it is cold.
    request_id: str = field(init=False)
    num_prompt: int = field(init=False)
    max_len: int = field(init=False)
    """Ids at which its budget is spent."""
    resume_len: int = field(init=False)
    """Ids that its client has, prompt included. Those beyond `ids` have yet to be checked."""
    stop_ids: frozenset[int] = field(init=False)
    has_logprobs: bool = field(init=False)
    is_background: bool = field(init=False)
    target: KVReservation | None = None
    draft: KVReservation | None = None
    round: Round | None = None
    ngram: NgramIndex | None = None
    ready_since: float = 0.0
    """When it was last given back, or admitted."""
    admitted_at: float | None = None
    """First admission."""
    account: ServedTokens = field(init=False, repr=False)
    """Its client's, from when it waits. In the background there is none."""
    num_preemptions: int = 0
    drafting: Drafting | None = None
    """None until it is asked for."""
    is_draftable: bool = True
    """False once a draft replica could not serve it."""
    history: AcceptanceHistory = field(init=False)
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Of the prompt's second token and so on, until they are told with the first token."""
    num_cached_prompt: int = 0
    """Prompt tokens that were found cached before the first token was chosen."""
    finish_reason: FinishReason | None = None
    pinned_fingerprint: str = field(init=False)
    """Of the exact targets that chose its tokens so far; empty: any target may go on."""

    def __post_init__(self) -> None:
        self.pinned_fingerprint = self.request.pinned_fingerprint
        self.rank = _rank(self.request, self.arrived_at), self.sequence_id
        self.request_id = self.request.request_id
        self.num_prompt = len(self.request.prompt_token_ids)
        self.max_len = self.request.max_len
        self.resume_len = self.num_prompt + len(self.request.resume_token_ids)
        self.stop_ids = _shared(self.request.stop_ids)
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
    def is_only_read(self) -> bool:
        """Whether what is missing on its target needs no logits: no place of the prompt is scored,
        and no client has brought ids back that are to be checked."""
        return not self.num_unscored and self.resume_len <= len(self.ids)

    @property
    def places(self) -> dict[Role, KVReservation]:
        places = ((Role.TARGET, self.target), (Role.DRAFT, self.draft))
        return {role: place for role, place in places if place is not None}

    def place(self, role: Role) -> KVReservation | None:
        return self.draft if role is _DRAFT else self.target

    def take_place(self, role: Role, place: KVReservation | None) -> None:
        """Have a place on a replica, or none any more."""
        if role is Role.TARGET:
            self.target = place
        else:
            self.draft = place

    @property
    def is_verifying(self) -> bool:
        """Leased to its target, which will commit tokens."""
        return _chooses(self.target)

    @property
    def is_drafting(self) -> bool:
        """Leased to its draft, which will propose."""
        return _chooses(self.draft)

    @property
    def is_caught_up(self) -> bool:
        """The target lacks the pending token alone."""
        return self.target is not None and 0 < self.target.cached_len >= len(self.ids) - 1

    def unchecked(self, most: int) -> tuple[int, ...]:
        """The next ids, at most so many, that its client has and no target has chosen yet."""
        return self.request.resume_token_ids[self.num_emitted :][:most]

    def disagreement(self, tokens: tuple[int, ...]) -> str | None:
        """Where the target's choice is not what its client has."""
        pairs = zip(self.unchecked(len(tokens)), tokens, strict=False)
        for place, (given, chosen) in enumerate(pairs, start=self.num_emitted):
            if given != chosen:
                return (
                    f"resume: token id {given} at position {place} is not this request's: "
                    f"its answer has {chosen} there"
                )
        return None

    @property
    def num_unscored(self) -> int:
        """Prompt tokens whose log-probabilities the client waits for. An attempt that has emitted
        tokens has told them."""
        if len(self.ids) > self.num_prompt or self.request.params.num_prompt_logprobs is None:
            return 0
        return self.num_prompt - 1 - len(self.prompt_logprobs)

    @property
    def status(self) -> SequenceStatus:
        if self.finish_reason is not None:
            return _FINISHED
        draft, target, current = self.draft, self.target, self.round
        if draft is not None and draft.row is not None and draft.row.num_choices > 0:
            return _AT_DRAFT
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
            acceptance_histogram=tuple(self.history.histogram),
            steps=tuple(self.history.steps),
            queue_s=admitted_at - self.arrived_at,
            num_preemptions=self.num_preemptions,
            num_cached_tokens=self.num_cached_prompt,
        )

    def take_found(self, base_len: int, num_found: int) -> None:
        """Of a row behind place `base_len`. A prompt that begins anew is counted anew; what is fed
        again behind the first token was computed for this request, or for nobody."""
        if len(self.ids) == self.num_prompt:
            self.num_cached_prompt = num_found + (self.num_cached_prompt if base_len else 0)

    def take_scores(self, base_len: int, prompt_logprobs: tuple[TokenLogprobs, ...]) -> None:
        """Those of the tokens behind place `base_len`; known ones come again after a preemption."""
        self.prompt_logprobs += prompt_logprobs[len(self.prompt_logprobs) - base_len :]

    def append(self, token_ids: tuple[int, ...]) -> None:
        """Commit tokens: they are never taken back."""
        self.ids.extend(token_ids)
        self.prefix_hashes.fromlist(hashes_behind(self.prefix_hashes[-1], token_ids))


def _shared(stop_ids: frozenset[int]) -> frozenset[int]:
    """One object for all sequences alike: each that a sequence has of its own is a cache miss. A
    large set, which a client made up, goes with its sequence."""
    return _kept(stop_ids) if len(stop_ids) <= _FEW_STOP_IDS else stop_ids


@lru_cache(maxsize=1024)
def _kept(stop_ids: frozenset[int]) -> frozenset[int]:
    return stop_ids


def _rank(request: Request, arrived_at: float) -> float:
    if request.is_background:
        return BACKGROUND_RANK
    return arrived_at + request.priority * PRIORITY_STEP_S


def _chooses(place: KVReservation | None) -> bool:
    return place is not None and place.row is not None and place.row.num_choices > 0
