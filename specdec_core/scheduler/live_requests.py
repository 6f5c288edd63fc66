"""The live requests: admission to targets, slots on drafts, preemption, deadlines and the end.

A sequence without a target is always in the waiting queue. A slot that is taken away is noted for
its replica to free (ReplicaState.frees).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import Role
from specdec_core.request import ErrorKind, FinishReason, Request, TokenEvent, cut_at_stop
from specdec_core.scheduler.commands import Command
from specdec_core.scheduler.fair_queue import RetryHint, WaitingQueue
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.replicas import ReplicaSet, ReplicaState
from specdec_core.scheduler.sequence import Sequence
from specdec_core.scheduler.stats import SchedulerStats

MOST_AT_ONCE = 256
"""Maximum requests ended by one decision. The others wait for the next decision, so that leases are
not delayed."""
_SPARE = 64
"""Number of deadlines of ended requests that are tolerated before all of them are removed."""

_Deadline = tuple[float, int, str]
"""(time, sequence ID, request ID)."""


class LiveRequests:
    """At most one live sequence per request ID. It gives and takes their KV slots."""

    def __init__(
        self,
        replicas: ReplicaSet,
        proposer: Proposer,
        commands: list[Command],
        stats: SchedulerStats,
    ) -> None:
        self._replicas = replicas
        self._proposer = proposer
        self._commands = commands
        self._stats = stats
        self.by_id: dict[str, Sequence] = {}
        """Request ID -> its sequence."""
        self.num_clients = 0
        """Number of live sequences that a client waits for."""
        self.waiting = WaitingQueue()
        self.retry_hint = RetryHint()
        self.num_preemptions = 0
        self._undrafted: dict[int, Sequence] = {}
        """Admitted sequences that wait for a slot on a draft replica."""
        self._next_sequence_id = 0
        self._deadlines: list[_Deadline] = []
        """A heap. Deadlines of ended requests are dropped when they come up."""
        self._most_deadlines = _SPARE

    @property
    def num_undrafted(self) -> int:
        """Number of admitted sequences that wait for a draft replica and that one could hold."""
        lengths = [draft.longest_len for draft in self._replicas.drafts]
        longest_len = max(lengths, default=inf)
        return sum(len(sequence.ids) < longest_len for sequence in self._undrafted.values())

    @property
    def soonest_deadline(self) -> float:
        """Earliest deadline of a live request; infinite if no live request has one."""
        while self._deadlines and not self._is_live(self._deadlines[0]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else inf

    def add(self, request: Request, now: float) -> Sequence:
        """Let the request wait. It ends at once if the tokens that it has emitted end it."""
        sequence = Sequence(self._next_sequence_id, request, now)
        self._next_sequence_id += 1
        self.by_id[request.request_id] = sequence
        self.num_clients += not sequence.is_background
        if request.emitted_token_ids and self._finish_ended(sequence):
            return sequence
        self.waiting.push(sequence)
        if request.timeout_s is not None:
            self._note_deadline(sequence, now + request.timeout_s)
        return sequence

    def admit(self, now: float) -> None:
        """Admit waiting sequences in turn while the first fits; end those that can never run."""
        waiting, num_admitted = self.waiting, -self.waiting.num_admitted
        while waiting.sequences:
            sequence = waiting.first
            if sequence.pinned_fingerprint and self._fail_unequal(sequence):
                continue
            target = self._replicas.roomiest_target(len(sequence.ids))
            # Every ID is read only when the sequence is about to be admitted.
            misfit = self._replicas.misfit(sequence.request, reads_ids=target is not None)
            if misfit is not None:
                self.fail(sequence, str(misfit), ErrorKind.INVALID)
            elif target is not None:
                waiting.admit(sequence)
                sequence.target = target.add(sequence, len(sequence.ids))
                sequence.ready_since = now
                if sequence.admitted_at is None:
                    sequence.admitted_at = now
                self._look_for_draft(sequence)
            elif not self._make_way(sequence):
                break
        num_admitted += waiting.num_admitted
        self.retry_hint.note(num_admitted, waiting.num_waiting_clients > 0, now)

    def place_on_drafts(self) -> None:
        """Give draft slots to the sequences that lack one, in order, while there is room."""
        drafts = [draft for draft in self._replicas.drafts if draft.is_usable]
        if not self._undrafted or not drafts:
            return
        longest_len = max(draft.longest_len for draft in drafts)
        placed: list[int] = []
        for sequence in self._undrafted.values():
            assert sequence.target is not None, "who looks for a draft is admitted"
            draft = self._replicas.roomiest_draft(len(sequence.ids) + 1, sequence.target.replica_id)
            if draft is not None:
                sequence.draft = draft.add(sequence, len(sequence.ids))
                placed.append(sequence.sequence_id)
            elif len(sequence.ids) < longest_len:
                break
        for sequence_id in placed:
            del self._undrafted[sequence_id]

    def emit(
        self, sequence: Sequence, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]
    ) -> None:
        """Commit tokens, at least one, and send them to the client."""
        index = len(sequence.ids) - sequence.num_prompt
        event = TokenEvent(sequence.request_id, index, tokens)
        if logprobs or sequence.prompt_logprobs:
            prompt_logprobs, sequence.prompt_logprobs = sequence.prompt_logprobs, ()
            event = event._replace(logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        if sequence.pinned_fingerprint and sequence.history.num_rounds == 1:
            event = event._replace(pinned_fingerprint=sequence.pinned_fingerprint)
        sequence.append(tokens)
        self._commands.append(event)

    def finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> None:
        """End the sequence in any state, with its last event."""
        event = TokenEvent(sequence.request_id, sequence.num_emitted, tokens, reason)
        if tokens:
            event = event._replace(logprobs=logprobs, prompt_logprobs=sequence.prompt_logprobs)
        sequence.append(tokens)
        self._end(sequence, reason, event)

    def fail(self, sequence: Sequence, error: str, kind: ErrorKind = ErrorKind.FAILED) -> None:
        """End the sequence in any state with an error."""
        reason = FinishReason.ERROR
        event = TokenEvent(sequence.request_id, sequence.num_emitted, (), reason)
        self._end(sequence, reason, event._replace(error=error, error_kind=kind))

    def forget(self, sequence: Sequence, reason: FinishReason) -> None:
        """End the sequence without an event: a later attempt replaces it, or it is refused."""
        sequence.finish_reason = reason
        self.num_clients -= not sequence.is_background
        self.waiting.end(sequence)
        for reservation in (sequence.target, sequence.draft):
            if reservation is not None:
                replica = self._replicas.by_id[reservation.replica_id]
                replica.frees.append(sequence.sequence_id)
                replica.remove(sequence, reservation)
        sequence.target = sequence.draft = None
        self._undrafted.pop(sequence.sequence_id, None)
        if sequence.drafter is not None and sequence.drafter.learns:
            self._proposer.end(sequence)
        del self.by_id[sequence.request_id]

    def end_overdue(self, now: float) -> None:
        """End requests whose deadline has passed, in any state."""
        for _ in range(MOST_AT_ONCE):
            if self.soonest_deadline > now:
                return
            _, _, request_id = heappop(self._deadlines)
            sequence = self.by_id[request_id]
            timeout_s = sequence.request.timeout_s
            self.fail(sequence, f"not finished within {timeout_s:g} s", ErrorKind.TIMEOUT)

    def preempt(self, target: ReplicaState, sequence: Sequence) -> None:
        """Take the sequence's slot on its target back. The sequence waits and keeps its IDs."""
        sequence.num_preemptions += 1
        self.num_preemptions += not sequence.is_background
        self.leave(target, sequence)

    def leave(self, replica: ReplicaState, sequence: Sequence) -> None:
        """Give up the sequence's slot on the replica; the sequence itself continues.

        The replica frees the slot after everything that was leased there.
        """
        replica.frees.append(sequence.sequence_id)
        self._remove(replica, sequence)

    def evacuate(self, replica: ReplicaState) -> None:
        """Move all sequences away from a replica that has lost everything. Nothing is freed."""
        for sequence in list(replica.sequences.values()):
            self._remove(replica, sequence)
        replica.leases.clear()
        replica.wake_at = inf
        replica.frees.clear()

    def _end(self, sequence: Sequence, reason: FinishReason, event: TokenEvent) -> None:
        """Forget the sequence and send its last event, with its statistics and fingerprint."""
        self.forget(sequence, reason)
        if not sequence.is_background:
            self._stats.num_finished[reason] += 1
        pinned = sequence.pinned_fingerprint
        self._commands.append(event._replace(stats=sequence.stats, pinned_fingerprint=pinned))

    def _finish_ended(self, sequence: Sequence) -> bool:
        """Finish a sequence if the tokens that it has emitted end it; return whether they do."""
        request = sequence.request
        budget = request.params.max_tokens
        _, reason = cut_at_stop(request.emitted_token_ids, sequence.stop_ids, budget)
        if reason is not None:
            self.finish(sequence, reason)
        return reason is not None

    def _fail_unequal(self, sequence: Sequence) -> bool:
        """Fail a sequence that no target may continue any more; return whether it has failed."""
        unequal = self._replicas.unequal(sequence.pinned_fingerprint)
        if unequal is not None:
            self.fail(sequence, unequal, ErrorKind.RETRYABLE)
        return unequal is not None

    def _note_deadline(self, sequence: Sequence, deadline: float) -> None:
        heappush(self._deadlines, (deadline, sequence.sequence_id, sequence.request_id))
        if len(self._deadlines) > self._most_deadlines:
            self._deadlines = [one for one in self._deadlines if self._is_live(one)]
            heapify(self._deadlines)
            self._most_deadlines = 2 * len(self._deadlines) + _SPARE

    def _is_live(self, deadline: _Deadline) -> bool:
        _, sequence_id, request_id = deadline
        sequence = self.by_id.get(request_id)
        return sequence is not None and sequence.sequence_id == sequence_id

    def _make_way(self, sequence: Sequence) -> bool:
        """Preempt a background sequence for a client's; return whether one was preempted.

        A background sequence that is leased out is left alone: it returns soon.
        """
        if sequence.is_background:
            return False
        for target in self._replicas.targets:
            for other in target.background.values():
                if not target.is_leased(other):
                    self.preempt(target, other)
                    return True
        return False

    def _remove(self, replica: ReplicaState, sequence: Sequence) -> None:
        reservation = sequence.reservation(replica.role)
        assert reservation is not None, "a sequence is removed from where it was added"
        replica.remove(sequence, reservation)
        if replica.role is Role.TARGET:
            sequence.target = None
            self._undrafted.pop(sequence.sequence_id, None)
            self.waiting.push(sequence)
        else:
            sequence.draft = None
            self._look_for_draft(sequence)

    def _look_for_draft(self, sequence: Sequence) -> None:
        is_placed = sequence.target is not None and sequence.draft is None
        if is_placed and self._proposer.may_draft(sequence):
            self._undrafted[sequence.sequence_id] = sequence
