"""Running totals of the scheduler, and the frozen snapshot that leaves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from specdec_core.messages import GroupLease, Role
from specdec_core.request import FinishReason
from specdec_core.speculation.k_policy import DraftLengthReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounters:
    """Counters of one registered replica."""

    replica_id: str
    role: Role
    num_sequences: int
    max_group_size: int
    """Maximum rows of its groups."""
    num_blocks: int
    block_size: int
    num_free_blocks: int
    num_leases: int
    """Leases executed, counted by their results."""
    num_rows: int
    busy_s: float
    is_fenced: bool
    is_draining: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCounts:
    """Number of leases by the role of the replica that they were granted to."""

    granted: Mapping[Role, int]
    expired: Mapping[Role, int]
    """Leases given up because their replica was fenced: the one that was not answered in time, and
    those after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCounters:
    """A snapshot. Groups, rounds and waits are those of targets; a draft's are in `replicas`."""

    num_waiting: int
    num_waiting_tokens: int
    """Positions that the waiting requests need to be admitted."""
    num_running: int
    num_undrafted: int
    """Admitted sequences that could use a draft replica and have none."""
    num_draft_queued: int
    """Rows that wait for a draft replica's next pass."""
    replicas: tuple[ReplicaCounters, ...]
    num_equal_length_groups: int
    """Groups whose rows have one base length and feed the same number of tokens. A group of one row
    counts, too."""
    num_split_groups: int
    """Groups that were formed while one half was verified and the other drafted."""
    group_sizes: tuple[int, ...]
    """Index j: groups of j rows."""
    max_wait_s: float
    """Maximum seconds that a ready row has waited for its group."""
    sum_wait_s: float
    max_draft_wait_s: float
    """Maximum wait in seconds of rows that a draft replica was to extend, without side leases."""
    num_sequence_rounds: int
    """Rounds counted once per sequence: a group of B rows that commit counts B."""
    num_proposed_rounds: int
    """Sequence rounds that checked a proposal."""
    num_drafted: int
    num_draft_rows: int
    """Rows for which a draft replica was asked for a proposal."""
    num_accepted: int
    accepted_per_position: tuple[int, ...]
    """Index j: how often drafted token j was accepted."""
    drafted_per_position: tuple[int, ...]
    num_committed: int
    """Emitted tokens."""
    num_finished: dict[FinishReason, int]
    num_preemptions: int
    num_kv_misses: int
    num_stale_results: int
    num_fenced: int
    """How often a replica was fenced."""
    leases: LeaseCounts
    k_policy: Mapping[str, float] = field(default_factory=dict)
    """The K policy's estimates of costs and acceptance; see GoodputPolicy.figures."""
    num_rounds_by_k_cause: Mapping[DraftLengthReason, int] = field(default_factory=dict)
    """Sequence rounds by the reason for their K. The sum is `num_sequence_rounds`."""

    @property
    def num_groups(self) -> int:
        return sum(self.group_sizes)


class RoundTotals(NamedTuple):
    """Totals of rounds, named as the fields of SchedulerCounters and AlgorithmStats."""

    num_sequence_rounds: int
    num_proposed_rounds: int
    num_drafted: int
    num_accepted: int
    accepted_per_position: tuple[int, ...]
    drafted_per_position: tuple[int, ...]


@dataclass(eq=False, slots=True)
class SchedulerStats:
    """Totals since the scheduler was made."""

    num_equal_length_groups: int = 0
    num_split_groups: int = 0
    group_sizes: Counter[int] = field(default_factory=Counter)
    max_wait_s: float = 0.0
    sum_wait_s: float = 0.0
    max_draft_wait_s: float = 0.0
    num_draft_rows: int = 0
    rounds: dict[tuple[int, int], int] = field(default_factory=dict)
    """(drafted, accepted) tokens of a round -> number of rounds. A Counter would count at half the
    speed."""
    k_causes: list[int] = field(default_factory=lambda: [0 for _ in DraftLengthReason])
    """Number of rounds by DraftLengthReason."""
    num_committed: int = 0
    num_finished: Counter[FinishReason] = field(default_factory=Counter)
    num_kv_misses: int = 0
    num_stale_results: int = 0
    num_fenced: int = 0
    num_draft_leases: int = 0
    num_expired: Counter[Role] = field(default_factory=Counter)

    def record_draft_lease(self, lease: GroupLease, waits: list[float]) -> None:
        """Count a draft's lease. `waits` are the seconds that its rows have waited."""
        owning = [wait for row, wait in zip(lease.rows, waits, strict=True) if row.num_choices]
        self.max_draft_wait_s = max(self.max_draft_wait_s, *owning, 0.0)
        self.num_draft_rows += len(owning)
        self.num_draft_leases += 1

    def record_group(self, lease: GroupLease, waits: list[float]) -> None:
        """Count a target's lease. `waits` are the seconds that its rows have waited."""
        self.group_sizes[len(lease.rows)] += 1
        shape = lease.rows[0].shape
        self.num_equal_length_groups += all(row.shape == shape for row in lease.rows)
        self.max_wait_s = max(self.max_wait_s, *waits)
        self.sum_wait_s += sum(waits)

    def record_fence(self, role: Role, num_leases: int) -> None:
        self.num_fenced += 1
        self.num_expired[role] += num_leases

    def record_round(self, num_drafted: int, num_accepted: int, num_committed: int) -> None:
        kind = num_drafted, num_accepted
        self.rounds[kind] = self.rounds.get(kind, 0) + 1
        self.num_committed += num_committed

    @property
    def leases(self) -> LeaseCounts:
        """Counts of leases. A group is a lease that was granted to a target."""
        granted = {Role.TARGET: self.group_sizes.total(), Role.DRAFT: self.num_draft_leases}
        return LeaseCounts(granted=granted, expired={role: self.num_expired[role] for role in Role})

    def round_totals(self) -> RoundTotals:
        """Return the totals of all rounds so far."""
        num_rounds = num_proposed = 0
        drafted: Counter[int] = Counter()
        accepted: Counter[int] = Counter()
        for (num_drafted, num_accepted), count in self.rounds.items():
            num_rounds += count
            num_proposed += count if num_drafted else 0
            for position in range(num_drafted):
                drafted[position] += count
            for position in range(num_accepted):
                accepted[position] += count
        return RoundTotals(
            num_sequence_rounds=num_rounds,
            num_proposed_rounds=num_proposed,
            num_drafted=drafted.total(),
            num_accepted=accepted.total(),
            accepted_per_position=dense(accepted),
            drafted_per_position=dense(drafted),
        )


def dense(counter: Counter[int]) -> tuple[int, ...]:
    """Return the counts by index, zeros included."""
    return tuple(counter[index] for index in range(max(counter, default=-1) + 1))
