"""Placement of sequences: admission to targets, slots on drafts, preemption, and every Free.

The rate of admissions gives refused requests a hint when to retry.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from specdec_core.messages import Role
from specdec_core.request import ErrorKind
from specdec_core.scheduler.commands import Outbox
from specdec_core.scheduler.fair_queue import WaitingQueue
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.replicas import ReplicaSet, ReplicaState
from specdec_core.scheduler.sequence import Sequence

RETRY_AFTER_S = 1.0
"""Minimum hint, and the hint before anything is measured."""
LONGEST_RETRY_S = 60.0
_REMEMBERED = 128
"""Admitted requests after which half of them are forgotten."""


class RetryHint:
    """Computes when a refused request would have its turn if all refused requests came back."""

    def __init__(self) -> None:
        self._since: float | None = None
        """Time at which requests began to wait; None while none waits."""
        self._num_left = 0.0
        """Requests admitted since then."""
        self._num_refused = 0
        """Requests refused since then, less one for each that was admitted later."""

    def note(self, num_admitted: int, is_waiting: bool, now: float) -> None:
        """Note how many requests were admitted now, and whether others still wait."""
        if not is_waiting:
            self.forget()
        elif self._since is None:  # requests that did not wait say nothing about those that do
            self._since = now
        elif num_admitted:
            self._num_left += num_admitted
            self._num_refused = max(self._num_refused - num_admitted, 0)
            if self._num_left > _REMEMBERED:
                self._num_left /= 2
                self._since = (self._since + now) / 2

    def forget(self) -> None:
        """Start over, because no request waits any more."""
        if self._since is not None:
            self._since, self._num_left, self._num_refused = None, 0.0, 0

    def refused(self, now: float) -> float:
        """Count one more refused request and return its retry hint in seconds."""
        self._num_refused += 1
        if self._since is None or not self._num_left:
            return RETRY_AFTER_S
        per_request_s = (now - self._since) / self._num_left
        wait_s = self._num_refused * per_request_s
        return round(min(max(wait_s, RETRY_AFTER_S), LONGEST_RETRY_S), 1)


class Refusal(NamedTuple):
    """A waiting sequence that no registered target can ever finish."""

    sequence: Sequence
    reason: str
    kind: ErrorKind


class AdmissionQueue:
    """Gives and takes KV slots. A sequence without a target is always in the waiting queue."""

    def __init__(self, replicas: ReplicaSet, outbox: Outbox, proposer: Proposer) -> None:
        self._replicas = replicas
        self._outbox = outbox
        self._proposer = proposer
        self._undrafted: dict[int, Sequence] = {}
        """Admitted sequences that wait for a slot on a draft replica."""
        self.waiting = WaitingQueue()
        self.num_preemptions = 0

    @property
    def num_undrafted(self) -> int:
        """Number of admitted sequences that wait for a draft replica and that one could hold."""
        lengths = [draft.longest_len for draft in self._replicas.drafts]
        longest_len = max(lengths, default=inf)
        return sum(len(sequence.ids) < longest_len for sequence in self._undrafted.values())

    def admit(self, now: float) -> list[Refusal]:
        """Admit waiting sequences in turn while the first one fits.

        Return those that no target can ever finish.
        """
        refusals: list[Refusal] = []
        while len(self.waiting):
            sequence = self.waiting.first
            target = self._replicas.roomiest_target(len(sequence.ids))
            refusal = self._refusal(sequence, reads_ids=target is not None)
            if refusal is not None:
                self.waiting.discard(sequence)
                refusals.append(refusal)
            elif target is not None:
                self.waiting.admit(sequence)
                target.add(sequence, len(sequence.ids))
                sequence.ready_since = now
                if sequence.admitted_at is None:
                    sequence.admitted_at = now
                self._look_for_draft(sequence)
            elif not self._make_way(sequence):
                break
        return refusals

    def place_on_drafts(self) -> None:
        """Give draft slots to the sequences that lack one, in order, while there is room."""
        if not self._undrafted:
            return
        drafts = [draft for draft in self._replicas.drafts if draft.is_usable]
        if not drafts:
            return
        longest_len = max(draft.longest_len for draft in drafts)
        placed: list[int] = []
        for sequence in self._undrafted.values():
            assert sequence.target is not None, "who looks for a draft is admitted"
            draft = self._replicas.roomiest_draft(len(sequence.ids) + 1, sequence.target.replica_id)
            if draft is not None:
                draft.add(sequence, len(sequence.ids))
                placed.append(sequence.sequence_id)
            elif len(sequence.ids) < longest_len:
                break
        for sequence_id in placed:
            del self._undrafted[sequence_id]

    def preempt(self, sequence: Sequence) -> None:
        """Take the sequence's slot on its target back. The sequence waits and keeps its IDs."""
        sequence.num_preemptions += 1
        self.num_preemptions += not sequence.is_background
        self.leave(sequence, Role.TARGET)

    def leave(self, sequence: Sequence, role: Role) -> None:
        """Give up the sequence's slot; the sequence itself continues.

        The replica frees the slot after everything that was leased there.
        """
        replica = self._replicas[sequence.reservations[role].replica_id]
        self._outbox.free(replica.replica_id, sequence.sequence_id)
        self._remove(replica, sequence)

    def release(self, sequence: Sequence) -> None:
        """Remove an ended sequence from the queue and from every replica."""
        self.waiting.discard(sequence)
        self.waiting.end(sequence)
        for reservation in list(sequence.reservations.values()):
            self._outbox.free(reservation.replica_id, sequence.sequence_id)
            self._replicas[reservation.replica_id].remove(sequence)
        self._undrafted.pop(sequence.sequence_id, None)
        self._proposer.end(sequence)

    def evacuate(self, replica: ReplicaState) -> None:
        """Move all sequences away from a replica that has lost everything. Nothing is freed."""
        for sequence in list(replica.sequences.values()):
            self._remove(replica, sequence)
        replica.leases.clear()
        replica.wake_at = None
        self._outbox.forget_frees(replica.replica_id)

    def _refusal(self, sequence: Sequence, *, reads_ids: bool) -> Refusal | None:
        """Return why the sequence is refused, or None.

        `reads_ids` checks every ID, which is worth it only when the sequence is about to be
        admitted.
        """
        other = self._replicas.unequal(sequence.pinned_fingerprint)
        if other is not None:
            return Refusal(sequence, other, ErrorKind.RETRYABLE)
        check = self._replicas.misfit if reads_ids else self._replicas.overlong
        reason = check(sequence.request)
        return None if reason is None else Refusal(sequence, reason, ErrorKind.INVALID)

    def _make_way(self, sequence: Sequence) -> bool:
        """Preempt a background sequence for a client's; return whether one was preempted.

        A background sequence that is leased out is left alone: it returns soon.
        """
        if sequence.is_background:
            return False
        for target in self._replicas.targets:
            for other in target.background.values():
                if other.reservations[Role.TARGET].row is None:
                    self.preempt(other)
                    return True
        return False

    def _remove(self, replica: ReplicaState, sequence: Sequence) -> None:
        replica.remove(sequence)
        if replica.role is Role.TARGET:
            self._undrafted.pop(sequence.sequence_id, None)
            self.waiting.push(sequence)
        else:
            self._look_for_draft(sequence)

    def _look_for_draft(self, sequence: Sequence) -> None:
        is_placed = sequence.target is not None and sequence.draft is None
        if is_placed and self._proposer.may_draft(sequence):
            self._undrafted[sequence.sequence_id] = sequence
