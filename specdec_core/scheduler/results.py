"""Merges a group's result: the effect of each row's answer on its sequence."""

from __future__ import annotations

from specdec_core.messages import (
    OK,
    GroupLease,
    GroupResult,
    LeaseRow,
    Role,
    RowResult,
    RowStatus,
)
from specdec_core.request import ErrorKind, cut_at_stop
from specdec_core.scheduler.live_requests import LiveRequests
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.replicas import ReplicaState
from specdec_core.scheduler.sequence import KVReservation, Round, Sequence
from specdec_core.scheduler.stats import SchedulerStats
from specdec_core.speculation.drafter import Offer
from specdec_core.speculation.k_policy import DRAFT_REPLICA, KPolicy


class ResultHandler:
    """Merges answers to rows that are still leased out; all other answers were dropped before."""

    def __init__(
        self,
        requests: LiveRequests,
        proposer: Proposer,
        stats: SchedulerStats,
        k_policy: KPolicy,
    ) -> None:
        self._k_policy = k_policy
        self._proposer = proposer
        self._requests = requests
        self._stats = stats

    def apply(
        self, replica: ReplicaState, lease: GroupLease, result: GroupResult, now: float
    ) -> None:
        """Merge the answers of a result, then let the local drafters learn from it."""
        answers = {answer.sequence_id: answer for answer in result.rows}
        # Values are read once and calls are written out: this loop is a third of a decision.
        is_target, lease_id = lease.role is Role.TARGET, lease.lease_id
        sequences, changed = replica.sequences, replica.changed
        prefix_index, proposer = replica.ready_queue.prefix_index, self._proposer
        learners = proposer.learners(lease, sequences) if proposer.drafters.learn else []
        for row in lease.rows:
            sequence_id = row.sequence_id
            sequence = sequences.get(sequence_id)
            if sequence is None:
                continue  # it has ended meanwhile: the answer is discarded
            reservation = sequence.target if is_target else sequence.draft
            assert reservation is not None, "a sequence of the replica has a reservation"
            assert reservation.lease_id == lease_id, "a reservation is kept while it is leased"
            reservation.row = reservation.lease_id = None
            if is_target or row.num_choices > 0:  # it was the owner
                sequence.ready_since = now
            changed[sequence_id] = sequence
            answer = answers.get(sequence_id) or _no_answer(row)
            if answer.status is not OK:
                self._not_run(replica, sequence, reservation, row, answer)
            elif not is_target:
                self._drafted(replica, sequence, reservation, row, answer)
            elif not _is_consistent(sequence, row, answer):
                self._requests.fail(sequence, "the replica's answer does not belong to the row")
            else:
                if answer.prompt_logprobs:
                    sequence.take_scores(row.base_len, answer.prompt_logprobs)
                if answer.num_matched:
                    sequence.note_matched(row.base_len, answer.num_matched)
                if row.num_choices > 0:
                    self._commit(replica, sequence, row, answer)
                else:
                    reservation.cached_len = min(answer.cached_len, row.end_len)
                    replica.release(reservation, answer.cached_len, len(sequence.ids))
                if prefix_index is not None:
                    prefix_index.learn(sequence, row.base_len, answer.cached_len)
        if learners:
            proposer.learn(learners, result)

    def _not_run(
        self,
        replica: ReplicaState,
        sequence: Sequence,
        reservation: KVReservation,
        row: LeaseRow,
        answer: RowResult,
    ) -> None:
        if answer.status is RowStatus.NOT_READY and replica.role is Role.TARGET:
            return  # the slot has not changed: the next plan leases the same row
        can_send_more = row.base_len > 0 or row.rules is None
        if answer.status is RowStatus.KV_MISS and can_send_more:
            self._stats.num_kv_misses += 1
            _believe_less(reservation, row, answer.cached_len)
        else:
            self._refused(replica, sequence, answer)

    def _refused(self, replica: ReplicaState, sequence: Sequence, answer: RowResult) -> None:
        """Handle NO_ROOM, FAILED, INVALID, or a KV miss of a row that sent everything."""
        if replica.role is Role.DRAFT:
            sequence.is_draftable = False
            self._requests.leave(replica, sequence)
        elif answer.status is RowStatus.NO_ROOM and len(replica.sequences) > 1:
            self._requests.preempt(replica, sequence)
        else:
            is_invalid = answer.status is RowStatus.INVALID
            kind = ErrorKind.INVALID if is_invalid else ErrorKind.FAILED
            error = answer.error or f"the replica answered {answer.status}"
            self._requests.fail(sequence, error, kind)

    def _drafted(
        self,
        replica: ReplicaState,
        sequence: Sequence,
        reservation: KVReservation,
        row: LeaseRow,
        answer: RowResult,
    ) -> None:
        tokens = answer.tokens[: row.num_choices]
        reservation.cached_len = min(answer.cached_len, row.end_len + len(tokens))
        replica.release(reservation, answer.cached_len, len(sequence.ids))
        if row.num_choices > 0:
            current = sequence.round
            assert current is not None, "a draft is asked within a round"
            assert current.committed_len == row.end_len, "nobody commits while the draft owns"
            current.take_draft(tokens, reservation.reason)

    def _commit(
        self, replica: ReplicaState, sequence: Sequence, row: LeaseRow, answer: RowResult
    ) -> None:
        budget = sequence.max_len - len(sequence.ids)
        tokens, reason = cut_at_stop(answer.tokens, sequence.stop_ids, budget)
        num_tokens, num_drafted, num_accepted = len(tokens), len(row.proposal), answer.num_accepted
        if reason is not None:
            num_accepted = min(num_accepted, num_tokens)
        current, reservation = sequence.round, sequence.target
        assert current is not None, "what a target chooses belongs to a round"
        assert reservation is not None, "the row was leased to a target"
        assert current.committed_len == row.end_len, "nobody commits while the target owns"
        if current.committed_len < sequence.resume_len:
            if not self._check_resumed(sequence, tokens):
                return
            num_drafted = num_accepted = 0  # nobody drafted them
        sequence.history.record(num_drafted, num_accepted)
        local = current.local
        if current.is_drafted or (local is not None and local.tokens):
            self._learn(sequence, current, row, answer)
        if not sequence.is_background:
            self._stats.record_round(num_drafted, num_accepted, num_tokens)
            self._stats.k_causes[reservation.reason] += 1
            sequence.account.num_served += num_tokens
        if replica.is_exact:
            sequence.pinned_fingerprint = replica.info.fingerprint
        if sequence.draft is not None:
            # The draft cached its own proposal. The accepted part is still valid.
            accepted_len = row.end_len + answer.num_accepted
            sequence.draft.cached_len = min(sequence.draft.cached_len, accepted_len)
        if reason is not None:
            self._requests.finish(sequence, reason, tokens, answer.logprobs[:num_tokens])
            return
        self._requests.emit(sequence, tokens, answer.logprobs)
        held_len, num_ids = answer.cached_len, len(sequence.ids)
        reservation.cached_len = held_len if held_len < num_ids else num_ids - 1
        replica.release(reservation, held_len, num_ids)

    def _check_resumed(self, sequence: Sequence, tokens: tuple[int, ...]) -> bool:
        """End a resumed sequence whose client has other tokens; return whether it has the same."""
        wrong = sequence.disagreement(tokens)
        if wrong is not None:
            self._requests.fail(sequence, wrong, ErrorKind.INVALID)
        return wrong is None

    def _learn(self, sequence: Sequence, current: Round, row: LeaseRow, answer: RowResult) -> None:
        """Report to the K policy what was drafted, also by a local drafter that was not needed."""
        history, learn, local = sequence.history, self._k_policy.learn, current.local
        if local is not None and local.tokens:
            assert sequence.drafter is not None, "it has offered tokens"
            learn(history, sequence.drafter.name, local, answer.tokens)
        if current.is_drafted and row.proposal:
            learn(history, DRAFT_REPLICA, Offer(row.proposal), answer.tokens)


def _believe_less(reservation: KVReservation, row: LeaseRow, cached_len: int) -> None:
    """Start the next row lower after a KV miss. After repeated misses it starts from nothing."""
    reservation.cached_len = cached_len if cached_len < row.base_len else 0
    reservation.has_rules = reservation.cached_len > 0


def _is_consistent(sequence: Sequence, row: LeaseRow, answer: RowResult) -> bool:
    n, tokens = answer.num_accepted, answer.tokens
    num_tokens = n + 1 if row.num_choices else 0
    num_logprobs = num_tokens if sequence.has_logprobs else 0
    return (
        len(tokens) == num_tokens
        and (n == 0 or tokens[:n] == row.proposal[:n])
        and len(answer.logprobs) == num_logprobs
        and len(answer.prompt_logprobs) == row.num_scored
        and 0 <= answer.num_matched <= len(row.new_ids)
    )


def _no_answer(row: LeaseRow) -> RowResult:
    return RowResult(
        sequence_id=row.sequence_id, status=RowStatus.FAILED, error="the replica left the row out"
    )
