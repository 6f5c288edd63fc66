"""Builds batches: keeps the rows of each ready queue, asks the grouping policy, reserves KV blocks.

Rows that wait for a draft without time go to their target without a proposal.
"""

from __future__ import annotations

from specdec_core.config import SchedulerConfig
from specdec_core.messages import DRAFT, TARGET, GroupLease, Role
from specdec_core.scheduler.batch_rules import NEXT_EVENT, ReplicaLoad
from specdec_core.scheduler.commands import Command, SendLease
from specdec_core.scheduler.grouping import GroupingPolicy
from specdec_core.scheduler.live_requests import LiveRequests
from specdec_core.scheduler.pipelining import Pipelining
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.replicas import OpenLease, ReplicaSet, ReplicaState
from specdec_core.scheduler.rows import (
    ScheduledRow,
    fit,
    plan_drafting,
    plan_verification,
    rank_of,
)
from specdec_core.scheduler.sequence import KVReservation, Sequence
from specdec_core.scheduler.stats import SchedulerStats
from specdec_core.scheduler.verification_budget import VerificationBudget


class DraftFallback:
    """Fills the batches of targets while rows queue for a draft that is always busy."""

    def __init__(self, replicas: ReplicaSet, proposer: Proposer) -> None:
        self._replicas = replicas
        self._proposer = proposer

    def fill(self, target: ReplicaState, num_prefill_tokens: int) -> bool:
        """Fill the target's next batch, if each draft keeps a full batch, too.

        `num_prefill_tokens` are those of its open leases. Return whether the batch was filled.
        """
        ready = target.ready_queue
        num_clients = len(ready.decoding) + len(ready.prefill_rows(num_prefill_tokens))
        num_missing = ready.max_rows - num_clients
        may_fill = 0 < num_missing <= len(ready.awaiting_draft)
        if not may_fill or not self._proposer.is_draft_short:
            return False
        chosen = self._longest_waiting(ready, num_missing)
        if len(chosen) < num_missing:
            return False
        for sequence in chosen:
            self._proposer.skip_drafting(sequence)
            target.changed[sequence.sequence_id] = sequence
        return True

    def _longest_waiting(self, ready: ReadyQueue, count: int) -> list[Sequence]:
        """Return up to `count` sequences that wait for a draft, without the draft's next batch."""
        left = {
            draft.replica_id: len(draft.ready_queue.decoding) - draft.ready_queue.max_rows
            for draft in self._replicas.of_role(Role.DRAFT)
        }
        chosen: list[Sequence] = []
        for sequence in ready.awaiting_draft.values():
            if len(chosen) == count:
                break
            assert sequence.draft is not None, "it waits for one"
            draft_id = sequence.draft.replica_id
            if left[draft_id] > 0:
                left[draft_id] -= 1
                chosen.append(sequence)
        return chosen


class BatchBuilder:
    """Sends leases to idle replicas.

    Drafts come before targets, so that a target sees which sequences are being drafted.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        epoch: int,
        replicas: ReplicaSet,
        requests: LiveRequests,
        proposer: Proposer,
        budget: VerificationBudget,
        commands: list[Command],
        stats: SchedulerStats,
        pipelining: Pipelining,
        grouping: GroupingPolicy,
    ) -> None:
        self._config = config
        self._min_confidence = config.speculation.min_confidence
        self._epoch = epoch
        self._replicas = replicas
        self._records = replicas.by_id
        self._requests = requests
        self._proposer = proposer
        self._budget = budget
        self._commands = commands
        self._stats = stats
        self._pipelining = pipelining
        self._grouping = grouping
        self._draft_fallback = DraftFallback(replicas, proposer)
        self._max_split_rows: int | None = None
        """See ReplicaLoad."""
        self._targets_per_draft = 1.0
        """Number of targets that have sequences at present, per draft replica."""
        self._since = 0.0
        """Time at which the host began to form the present batches."""
        self._next_lease_id = 0

    def dispatch(self, now: float, since: float) -> None:
        """Send every batch that is due. The result that they follow was received at `since`."""
        self._since = since
        if self._proposer.ended:
            self._proposer.forget_ended()
        self._max_split_rows = self._decide_split() if self._replicas.drafts else None
        for replicas in (self._replicas.drafts, self._replicas.targets):
            for replica in replicas:
                replica.wake_at = NEXT_EVENT
                while replica.is_usable and replica.may_be_sent_more(self._config.max_open_leases):
                    if not self._dispatch_to(replica, now):
                        break

    def _dispatch_to(self, replica: ReplicaState, now: float) -> bool:
        """Send the replica's next batch if it is due; return whether one was sent."""
        ready = replica.ready_queue
        self._update_ready_queues()
        if not (ready.num_ready or ready.awaiting_draft):
            return False
        in_flight = sum([open_.num_catching_up for open_ in replica.leases.values()])
        if ready.awaiting_draft and self._draft_fallback.fill(replica, in_flight):
            self._update_ready_queues()
        if not ready.num_ready:
            return False
        load = ReplicaLoad(replica.device, bool(replica.leases), in_flight, self._max_split_rows)
        chosen = self._grouping.choose(ready, load, now)
        if not isinstance(chosen, list):
            replica.wake_at = chosen
            return False
        batch = sorted(chosen, key=rank_of)
        if replica.role is TARGET:
            batch = self._budget.shorten(batch, replica.info.tile_rows)
        rows = self._reserve_all(replica, batch)
        if batch and not rows and ready.num_ready:
            # The oldest row always gets room, whether it was chosen or not.
            rows = self._reserve_all(replica, ready.first(in_flight))
        if rows:
            self._send(replica, rows, now)
        return bool(rows)

    def _decide_split(self) -> int | None:
        """Count the targets per draft, and return Pipelining.max_rows."""
        num_drafts, _, num_drafted = _count(self._replicas.drafts)
        if not num_drafts:
            return None
        num_targets, num_busy, _ = _count(self._replicas.targets)
        self._targets_per_draft = num_busy / num_drafts
        num_live = -(-num_drafted // max(num_targets, 1))
        # Replicas that share a device never work at the same time.
        is_shared = any(draft.device.is_shared for draft in self._replicas.drafts)
        num_apart = 0 if is_shared else num_drafts
        return self._pipelining.max_rows(num_live, num_targets, num_apart)

    def _update_ready_queues(self) -> None:
        """Plan every changed sequence again, on each replica where it has a slot."""
        while self._replicas.changed:  # planning may change more sequences
            changed = list(self._replicas.changed.values())
            self._replicas.changed.clear()
            self._proposer.begin_rounds(changed, self._records, self._targets_per_draft)
            for sequence in changed:
                if sequence.target is not None:
                    self._note_on_target(sequence, sequence.target)
                if sequence.draft is not None:
                    self._note_on_draft(sequence, sequence.draft)

    def _note_on_target(self, sequence: Sequence, reservation: KVReservation) -> None:
        replica = self._records[reservation.replica_id]
        ready = replica.ready_queue
        # An open lease decides how the sequence continues, so no other may.
        if reservation.row is not None or (sequence.draft is not None and sequence.is_drafting):
            ready.mark_in_flight(sequence.sequence_id, reservation.replica_id)
            return
        assert sequence.round is not None, "begin_rounds comes before"
        offer = sequence.round.proposal
        proposal = offer.tokens if offer is not None else self._proposer.stopgap(sequence)
        if proposal is not None:
            chunk, is_alone = self._config.prefill_chunk, len(replica.sequences) == 1
            row = plan_verification(sequence, reservation, proposal, chunk, is_alone=is_alone)
            ready.enqueue(row)
        else:
            ready.await_draft(sequence)

    def _note_on_draft(self, sequence: Sequence, reservation: KVReservation) -> None:
        replica = self._records[reservation.replica_id]
        row = self._plan_draft(replica, sequence)
        if sequence.draft is not reservation:
            return  # it has left the draft instead of getting a row
        if row is not None:
            replica.ready_queue.enqueue(row)
        elif sequence.target is not None and sequence.is_verifying:
            replica.ready_queue.mark_in_flight(sequence.sequence_id, sequence.target.replica_id)
        else:
            replica.ready_queue.remove(sequence.sequence_id)

    def _plan_draft(self, replica: ReplicaState, sequence: Sequence) -> ScheduledRow | None:
        reservation = sequence.draft
        if reservation is None or reservation.row is not None or sequence.target is None:
            return None
        room = replica.longest_len - len(sequence.ids)
        if room <= 0:
            self._requests.leave(replica, sequence)
            return None
        chunk = self._config.prefill_chunk
        is_free = sequence.target.row is None
        if is_free and self._proposer.next_role(sequence) is DRAFT:
            wanted = self._proposer.num_draft_tokens(sequence)
            return plan_drafting(sequence, reservation, min(wanted, room), chunk)
        if self._proposer.needs_side_lease(sequence):
            return plan_drafting(sequence, reservation, 0, chunk)
        return None

    def _reserve_all(self, replica: ReplicaState, rows: list[ScheduledRow]) -> list[ScheduledRow]:
        """Reserve blocks for the rows. Return those that got them, some of them shortened."""
        is_target, reserve = replica.role is TARGET, replica.reserve
        fitting: list[ScheduledRow] = []
        for row in rows:
            sequence = row.sequence
            reservation = sequence.target if is_target else sequence.draft
            if reservation is not None and reserve(reservation, row.slot_len):
                fitting.append(row)
            elif (shortened := self._make_room(replica, row)) is not None:
                fitting.append(shortened)
        return fitting

    def _make_room(self, replica: ReplicaState, row: ScheduledRow) -> ScheduledRow | None:
        """Reserve the row's blocks and return the row; None if the blocks are not available.

        Drafted tokens are cut before any sequence is preempted. Only a younger sequence makes
        room, so the oldest one always continues.
        """
        sequence = row.sequence
        role = replica.role
        while (reservation := sequence.reservation(role)) is not None:
            if replica.reserve(reservation, row.slot_len):
                return row
            max_len = replica.max_len(reservation)
            if max_len >= row.end_len:
                row = fit(row, max_len)
                continue
            victim = self._victim(replica, sequence)
            if victim is not None:
                self._take_room(replica, victim)
            elif role is DRAFT:
                self._requests.leave(replica, sequence)
            else:
                break
        return None

    def _victim(self, replica: ReplicaState, sequence: Sequence) -> Sequence | None:
        idle = (s for s in replica.sequences.values() if not replica.is_leased(s))
        youngest = max(idle, key=lambda one: one.rank)
        return None if youngest is sequence else youngest

    def _take_room(self, replica: ReplicaState, victim: Sequence) -> None:
        if replica.role is Role.TARGET:
            self._requests.preempt(replica, victim)
        else:
            self._requests.leave(replica, victim)

    def _send(self, replica: ReplicaState, rows: list[ScheduledRow], now: float) -> None:
        """Send the rows as a lease, and mark them as leased out."""
        lease_id, is_target = self._next_lease_id, replica.role is TARGET
        mark_in_flight, replica_id = replica.ready_queue.mark_in_flight, replica.replica_id
        num_catching_up = replica.ready_queue.num_prefill_tokens(rows)
        waits: list[float] = []
        is_resuming = False
        for row in rows:
            sequence = row.sequence
            reservation = sequence.target if is_target else sequence.draft
            assert reservation is not None, "blocks were reserved for it"
            reservation.row, reservation.reason = row.lease_row, row.reason
            reservation.lease_id, reservation.has_rules = lease_id, True
            waits.append(0.0 if sequence.is_background else now - sequence.ready_since)
            is_resuming |= row.is_resuming
            if is_target:
                mark_in_flight(sequence.sequence_id, replica_id)
            if sequence.draft is not None:
                self._note_on_draft(sequence, sequence.draft)
            if not is_target and sequence.target is not None:
                self._note_on_target(sequence, sequence.target)
        # One pass of each replica on the device may run before the lease's own, or share its time.
        ttl_s = self._config.lease_ttl_s * len(replica.device.leases)
        lease_rows = tuple([row.lease_row for row in rows])
        lease = GroupLease(
            lease_id, self._epoch, replica_id, replica.role, lease_rows, ttl_s, self._min_confidence
        )
        self._next_lease_id += 1
        is_split = self._max_split_rows is not None
        replica.leases[lease_id] = OpenLease(
            lease, now + ttl_s, self._since, is_split, num_catching_up, is_resuming
        )
        if is_target:
            self._stats.num_split_groups += is_split
            self._stats.record_group(lease, waits)
        else:
            self._stats.record_draft_lease(lease, waits)
        replica.send_frees(self._commands)
        self._commands.append(SendLease(lease))


def _count(replicas: list[ReplicaState]) -> tuple[int, int, int]:
    """Return the numbers of usable replicas, of usable ones with sequences, and of sequences."""
    num_usable = num_busy = num_sequences = 0
    for replica in replicas:
        if replica.is_usable:
            num_usable += 1
            num_busy += len(replica.sequences) > 0
            num_sequences += len(replica.sequences)
    return num_usable, num_busy, num_sequences
