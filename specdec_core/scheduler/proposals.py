"""Choice of the proposer of a sequence's next tokens, and of their number (SpecMethod)."""

from __future__ import annotations

from specdec_core.config import SpecMethod, SpeculationConfig
from specdec_core.messages import Role
from specdec_core.request import Request
from specdec_core.scheduler.sequence import Drafting, Round, Sequence
from specdec_core.speculation.k_policy import DraftLengthReason, DraftSource, KPolicy
from specdec_core.speculation.limits import draft_limit, draft_method
from specdec_core.speculation.ngram import NgramIndex

_NOTHING_FOUND, _GOODPUT = (
    DraftLengthReason.NOTHING_FOUND,
    DraftLengthReason.GOODPUT,
)  # to name one takes as long as a call


class Proposer:
    """Decides each round once; makes the n-gram proposals itself."""

    def __init__(self, config: SpeculationConfig, k_policy: KPolicy, chunk: int) -> None:
        self._config = config
        self._k_policy = k_policy
        self._chunk = chunk
        self.targets_per_draft = 1.0
        """Number of targets that have sequences at present, per draft replica."""
        self._known_drafting: dict[Drafting, Drafting] = {}
        """One shared object per value, for all sequences with that value."""

    def may_draft(self, sequence: Sequence) -> bool:
        """Return whether a slot on a draft replica is of use to the sequence."""
        drafting = sequence.drafting or self._drafting(sequence)
        return drafting.asks_model and sequence.is_draftable and drafting.max_tokens > 0

    def begin_round(self, sequence: Sequence, num_live: int) -> Round:
        """Return the round of the sequence's present length; decide it on the first call."""
        current = sequence.round
        if current is None or current.committed_len != len(sequence.ids):
            current = self._new_round(sequence, num_live)
            sequence.round = current
        return current

    def next_role(self, sequence: Sequence, num_live: int) -> Role:
        """Return the role of the replica that runs the next lease owning the sequence.

        The first token never waits for the draft. No token waits for a long catch-up of the draft.
        """
        current = self.begin_round(sequence, num_live)
        if current.proposal is not None or sequence.draft is None or not sequence.is_caught_up:
            return Role.TARGET
        has_side_lease = sequence.draft.row is not None
        behind = len(sequence.ids) - sequence.draft.cached_len
        return Role.TARGET if has_side_lease or behind > self._chunk else Role.DRAFT

    @property
    def is_draft_short(self) -> bool:
        """See KPolicy."""
        return self._k_policy.is_draft_short

    def go_without(self, sequence: Sequence) -> None:
        """Let the target take a sequence that waits for the draft. The round has no proposal."""
        assert sequence.round is not None, "it was asked whether to draft"
        sequence.round.proposal = ()
        sequence.round.cause = DraftLengthReason.QUEUE

    def needs_side_lease(self, sequence: Sequence) -> bool:
        """Return whether the draft should catch up while the target continues without it."""
        if sequence.draft is None or sequence.target is None or _rests(sequence):
            return False
        behind = len(sequence.ids) - sequence.draft.cached_len
        return behind > self._chunk or (behind > 0 and not sequence.is_caught_up)

    def proposal(self, sequence: Sequence, num_live: int) -> tuple[int, ...] | None:
        """Return the tokens that the target checks if it is leased the sequence now.

        None means that the draft comes first.
        """
        proposal = self.begin_round(sequence, num_live).proposal
        if proposal is not None:
            return proposal
        if self.next_role(sequence, num_live) is Role.DRAFT:
            return None
        if sequence.draft is None:
            current = self.begin_round(sequence, num_live)
            found = self._look_up(sequence, current.num_draft_tokens, num_live)
            current.found, current.num_agreed = found
            return current.found
        return ()

    def _new_round(self, sequence: Sequence, num_live: int) -> Round:
        """Return a new round for the sequence's present length.

        Tokens that the client brought back are checked before anything is drafted. After them,
        prompt lookup comes first if the method includes it, because it costs nothing.
        """
        committed_len = len(sequence.ids)
        if committed_len < sequence.resume_len:
            resumed = sequence.unchecked(self._chunk)
            return Round(committed_len, 0, resumed, cause=DraftLengthReason.RESUME)
        drafting = sequence.drafting or self._drafting(sequence)
        cap = sequence.max_len - committed_len - 1  # a live sequence has a token left to emit
        if cap > drafting.max_tokens:
            cap = drafting.max_tokens
        found: tuple[int, ...] = ()
        num_agreed, cause = 0, drafting.cause
        if drafting.looks_up and cap > 0:
            rests = not self._k_policy.may_look_up(num_live)
            if not rests:
                found, num_agreed = self._look_up(sequence, cap, num_live)
            k = len(found)
            if k == 0:
                cause = _GOODPUT if rests else _NOTHING_FOUND
            else:
                k = self._num_draft_tokens(sequence, DraftSource.LOOKUP, k, num_live, num_agreed)
                cause = self._k_policy.cause
            if k > 0 or not drafting.asks_model:
                return Round(committed_len, k, found[:k], found, False, num_agreed, cause)
        k = cap
        if k > 0:
            k = self._num_draft_tokens(sequence, DraftSource.MODEL, cap, num_live)
            cause = self._k_policy.cause
        return Round(committed_len, k, None if k else (), found, False, num_agreed, cause)

    def _look_up(
        self, sequence: Sequence, num_tokens: int, num_live: int
    ) -> tuple[tuple[int, ...], int]:
        """Return the tokens that prompt lookup finds, and the length of their match.

        The length is 0 if the policy does not judge proposals by it.
        """
        index = sequence.ngram or self._index(sequence)
        found = index.propose(num_tokens)
        if self._k_policy.goes_by_agreement(num_live):
            return found, index.num_agreed
        return (() if index.num_agreed == 1 else found), 0

    def _num_draft_tokens(
        self,
        sequence: Sequence,
        drafter: DraftSource,
        limit: int,
        num_live: int,
        num_agreed: int = 0,
    ) -> int:
        wanted = self._k_policy.num_draft_tokens(
            sequence.history, drafter, limit, num_live, self.targets_per_draft, num_agreed
        )
        return max(0, min(wanted, limit))

    def _drafting(self, sequence: Sequence) -> Drafting:
        config, request = self._config, sequence.request
        method = draft_method(config, request)
        drafting = Drafting(
            looks_up=method in (SpecMethod.NGRAM, SpecMethod.HYBRID),
            asks_model=method.uses_draft_model,
            max_tokens=draft_limit(config, request),
            cause=self._unasked_cause(request),
        )
        sequence.drafting = self._known_drafting.setdefault(drafting, drafting)
        return sequence.drafting

    def _unasked_cause(self, request: Request) -> DraftLengthReason:
        if self._config.method is SpecMethod.NONE or not self._config.num_draft_tokens:
            return DraftLengthReason.OFF
        return (
            DraftLengthReason.ENDING
            if draft_limit(self._config, request)
            else DraftLengthReason.REQUEST
        )

    def _index(self, sequence: Sequence) -> NgramIndex:
        sequence.ngram = NgramIndex(sequence.ids, self._config.lookup)
        return sequence.ngram


def _rests(sequence: Sequence) -> bool:
    """Return whether the sequence's draft model is not worth asking at present."""
    return sequence.round is not None and sequence.round.num_draft_tokens == 0
