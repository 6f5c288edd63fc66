"""The scheduler: events in, commands out. It never waits, reads a clock or does I/O.

Every event method changes the state and queues the events that clients must get. `advance` then
expires leases, admits sequences, forms groups and returns all commands. The same calls give the
same commands.
"""

from __future__ import annotations

from math import inf

from specdec_core.config import SchedulerConfig
from specdec_core.errors import QueueFullError
from specdec_core.messages import GroupResult, ReplicaInfo, RowStatus
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.scheduler.batch_builder import BatchBuilder
from specdec_core.scheduler.commands import Command, Drained, SendReset
from specdec_core.scheduler.compatibility import check_compatible, check_rollback
from specdec_core.scheduler.grouping import make_grouping_policy
from specdec_core.scheduler.live_requests import LiveRequests
from specdec_core.scheduler.pipelining import Pipelining
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.replicas import ReplicaSet, ReplicaState
from specdec_core.scheduler.results import ResultHandler
from specdec_core.scheduler.sequence import Sequence, SequenceStatus
from specdec_core.scheduler.stats import SchedulerCounters, SchedulerStats, dense
from specdec_core.scheduler.verification_budget import VerificationBudget
from specdec_core.speculation.k_policy import DraftLengthReason, KPolicy
from specdec_core.speculation.policies import make_k_policy

_NOT_READY = RowStatus.NOT_READY  # to name it takes as long as a call


class Scheduler:
    """All live sequences of a cell, and the replicas that run them. It serves one caller at a time.

    `now` is in seconds on any monotonic clock. Call `advance` after events and at `next_deadline`.
    """

    def __init__(
        self, config: SchedulerConfig, *, epoch: int, k_policy: KPolicy | None = None
    ) -> None:
        self._config = config
        self._epoch = epoch
        self._last_result_at: float | None = None
        """Time of the last result after which no groups were formed yet; None if there is none."""
        self._replicas = ReplicaSet(config)
        self._commands: list[Command] = []
        """Commands that `advance` has yet to return, besides the replicas' frees."""
        self._stats = SchedulerStats()
        self._pipelining = Pipelining(config)
        self._k_policy = k_policy or make_k_policy(config)
        self._no_expiry_before = float("-inf")
        """Time before which no lease expires, neither an open one nor one sent from now on."""
        proposer = Proposer(config.speculation, self._k_policy, config.prefill_chunk)
        self._requests = LiveRequests(self._replicas, proposer, self._commands, self._stats)
        self._result_handler = ResultHandler(self._requests, proposer, self._stats, self._k_policy)
        self._batch_builder = BatchBuilder(
            config,
            epoch=epoch,
            replicas=self._replicas,
            requests=self._requests,
            proposer=proposer,
            budget=VerificationBudget(config, self._k_policy),
            commands=self._commands,
            stats=self._stats,
            pipelining=self._pipelining,
            grouping=make_grouping_policy(config),
        )

    @property
    def has_work(self) -> bool:
        """Whether there are live sequences, or commands that `advance` has yet to return."""
        replicas = self._replicas.by_id.values()
        return bool(self._requests.by_id or self._commands) or any(one.frees for one in replicas)

    @property
    def num_waiting(self) -> int:
        """Number of clients' requests that wait for admission."""
        return self._requests.waiting.num_clients

    @property
    def num_live(self) -> int:
        """Number of clients' requests that have not ended."""
        return self._requests.num_clients

    def status(self, request_id: str) -> SequenceStatus | None:
        """Return the status of a live request; None if it has ended or was never seen."""
        sequence = self._requests.by_id.get(request_id)
        return None if sequence is None else sequence.status

    def sequence_id(self, request_id: str) -> int | None:
        """Return a live request's ID in leases; None if it has ended or was never seen."""
        sequence = self._requests.by_id.get(request_id)
        return None if sequence is None else sequence.sequence_id

    def add(self, request: Request, now: float) -> None:
        """Queue a request. An older attempt with the same ID gets no more events.

        Raise InvalidRequestError if no target could ever finish the request. Raise QueueFullError
        if too many requests wait and its client has its share of them, unless the request has
        emitted tokens or replaces an attempt.
        """
        misfit = self._replicas.misfit(request)
        if misfit is not None:
            raise misfit
        if self._commands:
            self._drop_events(request.request_id)
        older = self._requests.by_id.get(request.request_id)
        if older is not None:
            self._requests.forget(older, FinishReason.ABORT)
        sequence = self._requests.add(request, now)
        is_known = older or request.emitted_token_ids or request.is_background
        if not is_known and self.num_waiting > self._config.max_queued:
            self._refuse_beyond_limit(sequence, now)

    def abort(self, request_id: str, now: float) -> bool:
        """End a request in any state; return False if it is unknown. Its last event follows."""
        sequence = self._requests.by_id.get(request_id)
        if sequence is None:
            return False
        self._requests.finish(sequence, FinishReason.ABORT)
        return True

    def register(self, info: ReplicaInfo, now: float) -> None:
        """Add a replica, which is empty. An older incarnation of the replica is dead."""
        check_compatible(info, (replica.info for replica in self._replicas.by_id.values()))
        check_rollback(info, self._config.speculation)
        self.deregister(info.replica_id, now)
        self._replicas.add(info)
        self._k_policy.welcome(info)
        self._pipelining.welcome(info)

    def deregister(self, replica_id: str, now: float, *, incarnation: int | None = None) -> None:
        """Remove a replica whose stream has closed.

        Do nothing if `incarnation` is given and is not the current one.
        """
        replica = self._replicas.by_id.get(replica_id)
        if replica is None or incarnation not in (None, replica.info.incarnation):
            return
        self._requests.evacuate(replica)
        self._replicas.remove(replica_id)

    def drain(self, replica_id: str, now: float) -> None:
        """Move the replica's sequences elsewhere. Drained follows once nothing is leased there."""
        replica = self._replicas.by_id.get(replica_id)
        if replica is not None and not replica.is_draining:
            replica.is_draining = True
            self._drain(replica)

    def on_result(self, result: GroupResult, now: float) -> None:
        """Merge a result. A result that is stale in any way is counted and dropped."""
        replica = self._replicas.by_id.get(result.replica_id)
        is_known = replica is not None and result.lease_id in replica.leases
        if replica is None or not is_known or result.epoch != self._epoch:
            self._stats.num_stale_results += 1
            return
        open_ = replica.leases.pop(result.lease_id)
        for behind in replica.leases.values():
            behind.deadline = now + behind.lease.ttl_s
        lease = open_.lease
        self._last_result_at = now
        replica.num_leases += 1
        replica.num_rows += len(lease.rows)
        replica.busy_s += result.seconds
        seconds = replica.device.answered(open_, result.seconds, now, result.recording_s)
        # A pass that left rows out, or checked tokens that a client brought back, is no measure.
        if not open_.is_resuming and _NOT_READY not in [row.status for row in result.rows]:
            self._k_policy.observe(lease, result, seconds)
            if self._replicas.drafts:
                self._pipelining.observe(lease, seconds, open_.is_split)
        self._result_handler.apply(replica, lease, result, now)
        if replica.is_draining:
            self._drain(replica)

    def on_reset_done(self, replica_id: str, incarnation: int, now: float) -> None:
        """Let a fenced replica serve again, because it has forgotten everything."""
        replica = self._replicas.by_id.get(replica_id)
        if replica is not None and replica.info.incarnation == incarnation:
            replica.is_fenced = False

    def advance(self, now: float) -> list[Command]:
        """Expire leases, end overdue requests, admit, form groups and return all commands."""
        if now >= self._no_expiry_before:
            self._expire(now)
        if self._requests.soonest_deadline <= now:
            self._requests.end_overdue(now)
        self._requests.admit(now)
        if self._replicas.drafts:
            self._requests.place_on_drafts()
        since = now if self._last_result_at is None else self._last_result_at
        self._last_result_at = None
        self._batch_builder.dispatch(now, since)
        for replica in self._replicas.by_id.values():
            replica.send_frees(self._commands)
        commands = self._commands.copy()
        self._commands.clear()
        return commands

    def next_deadline(self) -> float | None:
        """Return the time at which `advance` must be called even if no event comes, or None."""
        soonest = self._requests.soonest_deadline
        for replica in self._replicas.by_id.values():
            if replica.is_usable:
                soonest = min(soonest, replica.wake_at)
            for open_ in replica.leases.values():
                soonest = min(soonest, open_.deadline)
        return soonest if soonest < inf else None

    def counters(self) -> SchedulerCounters:
        stats = self._stats
        return SchedulerCounters(
            num_waiting=self.num_waiting,
            num_waiting_tokens=self._requests.waiting.num_client_tokens,
            num_running=self.num_live - self.num_waiting,
            num_undrafted=self._requests.num_undrafted,
            num_draft_queued=sum(r.ready_queue.num_ready for r in self._replicas.drafts),
            replicas=tuple(replica.counters() for replica in self._replicas.by_id.values()),
            num_equal_length_groups=stats.num_equal_length_groups,
            num_split_groups=stats.num_split_groups,
            group_sizes=dense(stats.group_sizes),
            max_wait_s=stats.max_wait_s,
            sum_wait_s=stats.sum_wait_s,
            max_draft_wait_s=stats.max_draft_wait_s,
            num_draft_rows=stats.num_draft_rows,
            **stats.round_totals()._asdict(),
            num_committed=stats.num_committed,
            num_finished=dict(stats.num_finished),
            num_preemptions=self._requests.num_preemptions,
            num_kv_misses=stats.num_kv_misses,
            num_stale_results=stats.num_stale_results,
            num_fenced=stats.num_fenced,
            leases=stats.leases,
            k_policy=self._k_policy.figures,
            num_rounds_by_k_cause=dict(zip(DraftLengthReason, stats.k_causes, strict=True)),
        )

    def _drop_events(self, request_id: str) -> None:
        self._commands[:] = [
            command
            for command in self._commands
            if not isinstance(command, TokenEvent) or command.request_id != request_id
        ]

    def _refuse_beyond_limit(self, sequence: Sequence, now: float) -> None:
        """Refuse the newcomer if too many requests still wait after admission.

        It stays if its client has no more than its share of the queue. Other clients therefore
        cannot keep it out.
        """
        self._requests.end_overdue(now)
        self._requests.admit(now)
        max_queued, num_queued = self._config.max_queued, self.num_waiting
        is_waiting = sequence.status is SequenceStatus.WAITING
        if num_queued <= max_queued or not is_waiting:
            return
        if self._requests.waiting.has_more_than_its_share(sequence.request.client, max_queued):
            self._requests.forget(sequence, FinishReason.ABORT)
            retry_after_s = self._requests.retry_hint.refused(now)
            raise QueueFullError(num_queued - 1, max_queued, retry_after_s)

    def _expire(self, now: float) -> None:
        """Fence replicas with an expired lease.

        All leases are checked about once per `lease_ttl_s`, not with every decision.
        """
        soonest = now + self._config.lease_ttl_s
        for replica in self._replicas.by_id.values():
            deadlines = [open_.deadline for open_ in replica.leases.values()]
            if deadlines and min(deadlines) <= now:
                self._fence(replica)
            else:
                soonest = min([soonest, *deadlines])
        self._no_expiry_before = soonest

    def _fence(self, replica: ReplicaState) -> None:
        """Fence a replica that may be dead or slow.

        Nothing that it holds counts until it reports that it has forgotten everything.
        """
        replica.is_fenced = True
        self._stats.record_fence(replica.role, len(replica.leases))
        self._requests.evacuate(replica)
        self._commands.append(SendReset(replica.replica_id, replica.info.incarnation))
        if replica.is_draining:
            self._commands.append(Drained(replica.replica_id))

    def _drain(self, replica: ReplicaState) -> None:
        for sequence in list(replica.sequences.values()):
            if not replica.is_leased(sequence):
                self._requests.leave(replica, sequence)
        if not replica.leases:
            replica.send_frees(self._commands)
            self._commands.append(Drained(replica.replica_id))
