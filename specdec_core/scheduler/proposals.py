"""Choice of the proposer of a sequence's next tokens, and of their number.

A local drafter comes first if the method has one, because it takes no lease. It also replaces a
draft replica that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from specdec_core.config import SpecMethod, SpeculationConfig, uses_draft_model
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, Role, RowResult, RowStatus
from specdec_core.request import Request
from specdec_core.scheduler.replicas import ReplicaState
from specdec_core.scheduler.sequence import Drafting, Round, Sequence
from specdec_core.speculation.drafter import NO_OFFER, Drafter, Observed, Offer
from specdec_core.speculation.k_policy import DraftLengthReason, DraftSource, KPolicy
from specdec_core.speculation.registry import LocalDrafters, draft_limit, draft_method, offers_of

_NOTHING_FOUND, _GOODPUT = (
    DraftLengthReason.NOTHING_FOUND,
    DraftLengthReason.GOODPUT,
)  # to name one takes as long as a call


class _Batch(NamedTuple):
    """Rows that a drafter is asked for in one call."""

    rows: list[Sequence]
    most: list[int]
    """Maximum tokens of each row."""


class _Asked(dict[tuple[Drafter, str], _Batch]):
    """(local drafter, target) -> sequences of the target that the drafter is asked for."""

    def add(self, drafter: Drafter, sequence: Sequence, most: int) -> None:
        assert sequence.target is not None, "only sequences of a target begin rounds"
        key = drafter, sequence.target.replica_id
        batch = self.get(key)
        if batch is None:
            batch = self[key] = _Batch([], [])
        batch.rows.append(sequence)
        batch.most.append(most)

    def add_stand_in(self, sequence: Sequence) -> None:
        """Add a sequence without a draft replica, if its round waits for one."""
        current, drafting = sequence.round, sequence.drafting
        assert current is not None
        assert drafting is not None
        if current.proposal is None and drafting.stand_in is not None:
            self.add(drafting.stand_in, sequence, current.num_draft_tokens)


class Proposer:
    """Decides each round once, and calls the local drafters."""

    def __init__(self, config: SpeculationConfig, k_policy: KPolicy, chunk: int) -> None:
        """Raise InvalidRequestError if the configuration names an unknown method."""
        self._config = config
        self._k_policy = k_policy
        self._chunk = chunk
        self._drafters = LocalDrafters(config)
        self._ended: list[Sequence] = []
        """Sequences that have ended, and that their drafters have yet to forget."""
        self.targets_per_draft = 1.0
        """Number of targets that have sequences at present, per draft replica."""
        self._known_drafting: dict[Drafting, Drafting] = {}
        """One shared object per value, for all sequences with that value."""

    @property
    def is_draft_short(self) -> bool:
        """See KPolicy."""
        return self._k_policy.is_draft_short

    def may_draft(self, sequence: Sequence) -> bool:
        """Return whether a slot on a draft replica is of use to the sequence."""
        drafting = sequence.drafting or self._drafting(sequence)
        return drafting.asks_model and sequence.is_draftable and drafting.max_tokens > 0

    def begin_rounds(
        self, sequences: Iterable[Sequence], replicas: Mapping[str, ReplicaState]
    ) -> None:
        """Decide the round of every sequence that its target may be leased now.

        A round is decided once for each committed length. The scheduler calls this before it plans
        the sequences. Each local drafter gets one call for all sequences of a target.
        """
        if self._ended:
            self._forget_ended()
        undecided: list[Sequence] = []
        asked, missing = _Asked(), _Asked()
        for sequence in sequences:
            target, current = sequence.target, sequence.round
            if target is None or target.row is not None:
                continue
            if sequence.draft is not None and sequence.is_drafting:
                continue
            if current is None or current.committed_len != len(sequence.ids):
                drafting = sequence.drafting or self._drafting(sequence)
                sequence.round = current = self._new_round(sequence, drafting)
                if current.proposal is None:
                    undecided.append(sequence)
                    if drafting.local is not None:
                        asked.add(drafting.local, sequence, current.limit)
            elif current.proposal is None and sequence.draft is None:
                missing.add_stand_in(sequence)  # its draft replica has left
        for (drafter, target_id), batch in asked.items():
            num_live = len(replicas[target_id].sequences)
            if self._k_policy.may_look_up(num_live):
                self._offer(drafter, batch, num_live)
        for sequence in undecided:
            assert sequence.target is not None, "only sequences of a target begin rounds"
            self._decide(sequence, len(replicas[sequence.target.replica_id].sequences))
            if sequence.draft is None:
                missing.add_stand_in(sequence)
        for (drafter, target_id), batch in missing.items():
            self._offer(drafter, batch, len(replicas[target_id].sequences))

    def proposal(self, sequence: Sequence) -> tuple[int, ...] | None:
        """Return the tokens that the target checks if it is leased the sequence now.

        None means that the draft comes first.
        """
        current = _round_of(sequence)
        if current.proposal is not None:
            return current.proposal
        if sequence.draft is None and current.local is not None:
            return current.local.tokens
        return None if self.next_role(sequence) is Role.DRAFT else ()

    def next_role(self, sequence: Sequence) -> Role:
        """Return the role of the replica that runs the next lease owning the sequence.

        The first token never waits for the draft. No token waits for a long catch-up of the draft.
        """
        has_proposal = _round_of(sequence).proposal is not None
        if has_proposal or sequence.draft is None or not sequence.is_caught_up:
            return Role.TARGET
        has_side_lease = sequence.draft.row is not None
        behind = len(sequence.ids) - sequence.draft.cached_len
        return Role.TARGET if has_side_lease or behind > self._chunk else Role.DRAFT

    def num_draft_tokens(self, sequence: Sequence) -> int:
        """Return K of the sequence's round."""
        return _round_of(sequence).num_draft_tokens

    def go_without(self, sequence: Sequence) -> None:
        """Let the target take a sequence that waits for the draft. The round has no proposal."""
        current = _round_of(sequence)
        current.proposal = ()
        current.cause = DraftLengthReason.QUEUE

    def needs_side_lease(self, sequence: Sequence) -> bool:
        """Return whether the draft should catch up while the target continues without it."""
        if sequence.draft is None or sequence.target is None or _rests(sequence):
            return False
        behind = len(sequence.ids) - sequence.draft.cached_len
        return behind > self._chunk or (behind > 0 and not sequence.is_caught_up)

    def learners(
        self, lease: GroupLease, sequences: Mapping[int, Sequence]
    ) -> list[tuple[Sequence, LeaseRow]]:
        """Return the rows of a target's lease whose local drafters learn from its pass."""
        if not self._drafters.learn or lease.role is not Role.TARGET:
            return []
        rows = [(sequences.get(row.sequence_id), row) for row in lease.rows]
        return [(s, row) for s, row in rows if s and s.drafter and s.drafter.learns]

    def learn(self, learners: list[tuple[Sequence, LeaseRow]], result: GroupResult) -> None:
        """Tell local drafters of a pass whose tokens are committed; let go of ended sequences."""
        answers = {answer.sequence_id: answer for answer in result.rows} if learners else {}
        told: dict[Drafter, tuple[list[Sequence], list[Observed]]] = {}
        for sequence, row in learners:
            answer = answers.get(row.sequence_id)
            if answer is not None and answer.status is RowStatus.OK and sequence.drafter:
                rows, observed = told.setdefault(sequence.drafter, ([], []))
                rows.append(sequence)
                observed.append(_observed(sequence, row, answer))
        for drafter, (rows, observed) in told.items():
            drafter.learn(rows, observed)
        self._forget_ended()

    def end(self, sequence: Sequence) -> None:
        """Note that a sequence has ended. Its drafter may learn of its last pass before it
        forgets."""
        if sequence.drafter is not None:
            self._ended.append(sequence)

    def _forget_ended(self) -> None:
        for sequence in self._ended:
            assert sequence.drafter is not None, "only these were noted"
            sequence.drafter.end(sequence)
        self._ended.clear()

    def _new_round(self, sequence: Sequence, drafting: Drafting) -> Round:
        """Return a new round for the sequence's present length.

        It has a proposal if no drafter is needed. Tokens that the client brought back are
        checked before anything is drafted.
        """
        committed_len = len(sequence.ids)
        if committed_len < sequence.resume_len:
            resumed = sequence.unchecked(self._chunk)
            return Round(committed_len, 0, resumed, cause=DraftLengthReason.RESUME)
        limit = sequence.max_len - committed_len - 1  # a live sequence has a token left to emit
        if limit > drafting.max_tokens:
            limit = drafting.max_tokens
        return Round(committed_len, limit, None if limit > 0 else (), cause=drafting.cause)

    def _offer(self, drafter: Drafter, batch: _Batch, num_live: int) -> None:
        """Note in each row's round what the drafter offers for it."""
        by_kind = self._k_policy.goes_by_agreement(num_live)
        for row, offer in zip(batch.rows, offers_of(drafter, batch.rows, batch.most), strict=True):
            if not by_kind and offer.kinds:
                offer = NO_OFFER if offer.kinds[0] == 1 else Offer(offer.tokens)
            _round_of(row).local = offer

    def _decide(self, sequence: Sequence, num_live: int) -> None:
        """Decide who proposes in a new round, and how many tokens."""
        current, drafting = sequence.round, sequence.drafting
        assert current is not None
        assert drafting is not None
        if drafting.local is not None:
            k, found = 0, current.local
            if found is None:
                current.cause = _GOODPUT
            elif found.tokens:
                k = self._num_draft_tokens(sequence, current, DraftSource.LOOKUP, num_live)
            else:
                current.cause = _NOTHING_FOUND
            if k > 0 or drafting.stand_in is None:
                current.num_draft_tokens = k
                current.proposal = found.tokens[:k] if found else ()
                return
        k = self._num_draft_tokens(sequence, current, DraftSource.MODEL, num_live)
        current.num_draft_tokens = k
        current.proposal = None if k else ()

    def _num_draft_tokens(
        self, sequence: Sequence, current: Round, drafter: DraftSource, num_live: int
    ) -> int:
        limit, agreed = current.limit, 0
        if drafter is DraftSource.LOOKUP and current.local is not None:
            limit, agreed = len(current.local.tokens), num_agreed(current.local)
        wanted = self._k_policy.num_draft_tokens(
            sequence.history, drafter, limit, num_live, self.targets_per_draft, agreed
        )
        current.cause = self._k_policy.cause
        return max(0, min(wanted, limit))

    def _drafting(self, sequence: Sequence) -> Drafting:
        config, request = self._config, sequence.request
        method = draft_method(config, request)
        local = self._drafters.of(method)
        drafting = Drafting(
            local=None if method == SpecMethod.DRAFT_MODEL else local,
            stand_in=local if uses_draft_model(method) else None,
            max_tokens=draft_limit(config, request),
            cause=self._unasked_cause(request),
        )
        sequence.drafting = self._known_drafting.setdefault(drafting, drafting)
        return sequence.drafting

    def _unasked_cause(self, request: Request) -> DraftLengthReason:
        if self._config.method == SpecMethod.NONE or not self._config.num_draft_tokens:
            return DraftLengthReason.OFF
        return (
            DraftLengthReason.ENDING
            if draft_limit(self._config, request)
            else DraftLengthReason.REQUEST
        )


def _observed(sequence: Sequence, row: LeaseRow, answer: RowResult) -> Observed:
    chosen = tuple(sequence.ids[row.end_len :]) if row.num_choices else ()
    return Observed(len(row.new_ids), chosen, min(answer.num_accepted, len(chosen)))


def num_agreed(offer: Offer | None) -> int:
    return offer.kinds[0] if offer and offer.kinds else 0


def _round_of(sequence: Sequence) -> Round:
    assert sequence.round is not None, "begin_rounds comes before"
    return sequence.round


def _rests(sequence: Sequence) -> bool:
    """Return whether the sequence's draft model is not worth asking at present."""
    return sequence.round is not None and sequence.round.num_draft_tokens == 0
