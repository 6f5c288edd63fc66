"""Choice of the proposer of a sequence's next tokens, and of their number.

A local drafter comes first if the method has one, because it takes no lease. It also replaces a
draft replica that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat

from specdec_core.config import DRAFT_MODEL_METHODS, SpecMethod, SpeculationConfig
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, Role, RowResult, RowStatus
from specdec_core.scheduler.replicas import ReplicaState
from specdec_core.scheduler.sequence import Drafting, Round, Sequence
from specdec_core.speculation.drafter import NO_OFFER, Drafter, Observed, Offer
from specdec_core.speculation.k_policy import DraftLengthReason, KPolicy, OfferedRow
from specdec_core.speculation.registry import LocalDrafters, draft_limit, draft_method, offers_of

_NO_MATCH = DraftLengthReason.NOTHING_FOUND  # to name it takes as long as a call


_Replicas = Mapping[str, ReplicaState]
_DrafterCalls = dict[tuple[Drafter, str], tuple[list[Sequence], list[int]]]
"""(local drafter, target) -> sequences of the target that the drafter is asked for, and the maximum
tokens of each."""


class Proposer:
    """Decides each round once, and calls the local drafters."""

    def __init__(self, config: SpeculationConfig, k_policy: KPolicy, chunk: int) -> None:
        """Raise InvalidRequestError if the configuration names an unknown method."""
        self._config = config
        self._k_policy = k_policy
        self._chunk = chunk
        self.drafters = LocalDrafters(config)
        self.ended: list[Sequence] = []
        """Sequences that have ended, and that their drafters have yet to forget."""
        self._shared_drafting: dict[tuple[str, int], Drafting] = {}
        """(method, maximum drafted tokens of a round) -> settings of all such sequences."""

    @property
    def is_draft_short(self) -> bool:
        """See KPolicy."""
        return self._k_policy.is_draft_short

    def may_draft(self, sequence: Sequence) -> bool:
        """Return whether a slot on a draft replica is of use to the sequence."""
        drafting = sequence.drafting or self._drafting(sequence)
        asks_model = drafting.stand_in is not None
        return asks_model and sequence.is_draftable and drafting.max_tokens > 0

    def begin_rounds(
        self, sequences: Iterable[Sequence], replicas: _Replicas, targets_per_draft: float
    ) -> None:
        """Decide the round of every sequence that its target may be leased now, once per length.

        Each local drafter gets one call for all sequences of a target. A draft replica serves
        `targets_per_draft` targets that have sequences.
        """
        drafted: list[Sequence] = []
        orphans: list[Sequence] = []
        calls: _DrafterCalls = {}
        for sequence in sequences:
            target, current = sequence.target, sequence.round
            if target is None or target.row is not None:
                continue
            if sequence.draft is not None and sequence.is_drafting:
                continue
            if current is None or current.committed_len != len(sequence.ids):
                drafting = sequence.drafting or self._drafting(sequence)
                sequence.round = current = self._new_round(sequence, drafting)
                if current.proposal is not None:
                    continue
                if drafting.stand_in is not None:
                    drafted.append(sequence)
                if drafting.local is not None:
                    key = drafting.local, target.replica_id
                    rows, most = calls.setdefault(key, ([], []))
                    rows.append(sequence)
                    most.append(current.limit)
            elif current.proposal is None and sequence.draft is None:
                orphans.append(sequence)
        self._ask(calls, replicas)
        if drafted or orphans:
            self._ask_drafts(drafted, orphans, replicas, targets_per_draft)

    def stopgap(self, sequence: Sequence) -> tuple[int, ...] | None:
        """Return what the target checks if no draft replica has answered; None to wait for one."""
        current = _round_of(sequence)
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

    def skip_drafting(self, sequence: Sequence) -> None:
        """Let the target take a sequence that waits for the draft. The round has no proposal."""
        current = _round_of(sequence)
        current.proposal, current.reason = NO_OFFER, DraftLengthReason.QUEUE

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
        if lease.role is not Role.TARGET:
            return []
        rows = [(sequences.get(row.sequence_id), row) for row in lease.rows]
        return [(s, row) for s, row in rows if s and s.drafter and s.drafter.learns]

    def learn(self, learners: list[tuple[Sequence, LeaseRow]], result: GroupResult) -> None:
        """Tell local drafters of a pass whose tokens are committed."""
        answers = {answer.sequence_id: answer for answer in result.rows}
        by_drafter: dict[Drafter, tuple[list[Sequence], list[Observed]]] = {}
        for sequence, row in learners:
            answer = answers.get(row.sequence_id)
            if answer is not None and answer.status is RowStatus.OK and sequence.drafter:
                rows, observed = by_drafter.setdefault(sequence.drafter, ([], []))
                rows.append(sequence)
                observed.append(_observed(sequence, row, answer))
        for drafter, (rows, observed) in by_drafter.items():
            drafter.learn(rows, observed)

    def end(self, sequence: Sequence) -> None:
        """Note an ended sequence. Only for one whose drafter learns, which forgets it after its
        last pass."""
        self.ended.append(sequence)

    def forget_ended(self) -> None:
        """Let the drafters forget the sequences that have ended. Called before each decision."""
        for sequence in self.ended:
            assert sequence.drafter is not None, "only these were noted"
            sequence.drafter.end(sequence)
        self.ended.clear()

    def _new_round(self, sequence: Sequence, drafting: Drafting) -> Round:
        """Return a round, with a proposal if the client brought tokens back or none can follow."""
        committed_len = len(sequence.ids)
        if committed_len < sequence.resume_len:
            return self._resumed_round(sequence)
        limit = sequence.max_len - committed_len - 1  # a live sequence has a token left to emit
        if limit > drafting.max_tokens:
            limit = drafting.max_tokens
        return Round(committed_len, limit, None if limit > 0 else NO_OFFER, drafting.reason)

    def _resumed_round(self, sequence: Sequence) -> Round:
        offer = Offer(sequence.unchecked(self._chunk))
        return Round(len(sequence.ids), 0, offer, DraftLengthReason.RESUME)

    def _ask_drafts(
        self,
        drafted: list[Sequence],
        orphans: list[Sequence],
        replicas: _Replicas,
        targets_per_draft: float,
    ) -> None:
        """Decide which of the new rounds of `drafted` sequences wait for a draft replica.

        Local drafters replace the draft replicas that they lack, and those that `orphans` have
        lost.
        """
        for sequence in drafted:
            target, current = sequence.target, sequence.round
            assert target is not None
            assert current is not None
            num_live = len(replicas[target.replica_id].sequences)
            if self._waits_for_draft(sequence, current, num_live, targets_per_draft):
                current.proposal = None
                if sequence.draft is None:
                    orphans.append(sequence)
            elif current.proposal is None:
                current.proposal = NO_OFFER
        calls: _DrafterCalls = {}
        for sequence in orphans:
            target, current, settings = sequence.target, sequence.round, sequence.drafting
            assert target is not None
            assert current is not None
            assert settings is not None
            assert settings.stand_in is not None, "its round waits for a draft replica"
            rows, most = calls.setdefault((settings.stand_in, target.replica_id), ([], []))
            rows.append(sequence)
            most.append(current.num_draft_tokens)
        self._ask(calls, replicas, is_stand_in=True)

    def _waits_for_draft(
        self, sequence: Sequence, current: Round, num_live: int, targets_per_draft: float
    ) -> bool:
        """Decide the draft steps of a new round; return whether there are any.

        If there are none, the local drafter's offer is proposed.
        """
        offered, local, drafter = None, current.local, sequence.drafter
        if local is not None and local.tokens and drafter is not None:
            offered = OfferedRow(sequence.history, drafter.name, local)
        steps, reason = self._k_policy.draft_steps(
            sequence.history, current.limit, num_live, targets_per_draft, offered
        )
        if steps > 0 or offered is None:
            current.num_draft_tokens, current.reason = steps, reason
        return steps > 0

    def _drafting(self, sequence: Sequence) -> Drafting:
        config, request = self._config, sequence.request
        key = draft_method(config, request), draft_limit(config, request)
        sequence.drafting = self._shared_drafting.get(key) or self._new_drafting(*key)
        return sequence.drafting

    def _new_drafting(self, method: str, limit: int) -> Drafting:
        """Return the settings of the first sequence with this method and limit, and keep them."""
        config, local = self._config, self.drafters.of(method)
        reason = DraftLengthReason.ENDING if limit else DraftLengthReason.REQUEST
        if config.method == SpecMethod.NONE or not config.num_draft_tokens:
            reason = DraftLengthReason.OFF
        drafting = self._shared_drafting[method, limit] = Drafting(
            local=None if method == SpecMethod.DRAFT_MODEL else local,
            stand_in=local if method in DRAFT_MODEL_METHODS else None,
            max_tokens=limit,
            reason=reason,
        )
        return drafting

    def _ask(self, calls: _DrafterCalls, replicas: _Replicas, *, is_stand_in: bool = False) -> None:
        """Note in each row's round what its drafter offers for it, or why it was not asked.

        Propose it unless the drafter replaces a missing draft replica, for which K is decided.
        """
        for (drafter, target_id), (rows, most) in calls.items():
            num_live = len(replicas[target_id].sequences)
            k, reason, least_chance = self._k_policy.terms(drafter.name, num_live)
            offers: Iterable[Offer | None] = repeat(None, len(rows))
            if is_stand_in or k >= max(most):
                offers = offers_of(drafter, rows, most)
            elif k > 0:
                offers = offers_of(drafter, rows, [min(limit, k) for limit in most])
            for row, offer in zip(rows, offers, strict=True):
                current = row.round
                assert current is not None, "it was asked for"
                if least_chance is not None and offer is not None and offer.chances:
                    is_weak = offer.chances[0] < least_chance
                    offer = NO_OFFER if is_weak else Offer(offer.tokens)
                current.local = offer
                current.reason = reason if offer is None or offer.tokens else _NO_MATCH
                if not is_stand_in:
                    current.proposal = offer = offer or NO_OFFER
                    current.num_draft_tokens = len(offer.tokens)


def _observed(sequence: Sequence, row: LeaseRow, answer: RowResult) -> Observed:
    chosen = tuple(sequence.ids[row.end_len :]) if row.num_choices else ()
    return Observed(len(row.new_ids), chosen, min(answer.num_accepted, len(chosen)))


def _round_of(sequence: Sequence) -> Round:
    assert sequence.round is not None, "begin_rounds comes before"
    return sequence.round


def _rests(sequence: Sequence) -> bool:
    """Return whether the sequence's draft model is not worth asking at present."""
    return sequence.round is not None and sequence.round.num_draft_tokens == 0
