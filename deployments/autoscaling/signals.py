"""What a cell's pool says of its last seconds: all that the autoscaler knows of the cell.

Loads are in replicas: what two targets do that are busy half of the time is 1.0. A replica that has
just come, and has not been measured yet, then changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

from specdec_core.leases import Role
from specdec_core.pool import PoolCounters, ReplicaCounters

WINDOW_S = 5.0
_SHORTEST_S = 0.5
"""Shares of less are noise: a pass may take as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSignals:
    """Numbers, so that they travel as a replica's statistics."""

    num_targets: float
    """That stay; those that are leaving are counted nowhere."""
    num_drafts: float
    num_waiting: float
    """Requests that wait for admission."""
    num_running: float
    target_load: float
    """Share of the time that a target is busy, times how full its groups are, of all targets."""
    kv_tokens: float
    """Positions that are reserved on the targets."""
    waiting_tokens: float
    """Positions that the waiting requests need to be admitted."""
    kv_tokens_per_target: float
    num_wanting: float
    """Admitted sequences that a draft replica is of use to."""
    num_starved: float
    """Those of them that have none, or wait for its next pass."""
    draft_busy: float
    """Share of the time that a draft is busy, of all drafts."""
    draft_kv: float
    """Share of a draft's KV that is reserved, of all drafts."""
    num_rounds: float
    """Of sequences."""
    drafted_share: float
    """Of those rounds: a draft replica was asked for a proposal."""

    @property
    def num_live(self) -> float:
        return self.num_waiting + self.num_running

    def as_stats(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_stats(cls, stats: Mapping[str, float]) -> CellSignals | None:
        """None where something is missing."""
        names = [field.name for field in fields(cls)]
        if not all(name in stats for name in names):
            return None
        return cls(**{name: stats[name] for name in names})


class SignalMeter:
    """Turns totals of the pool into shares of the last seconds. Time is an argument."""

    def __init__(self, max_group_size: int, window_s: float = WINDOW_S) -> None:
        self._max_group_size = max_group_size
        self._window_s = window_s
        self._samples: deque[tuple[float, PoolCounters]] = deque()

    def note(self, counters: PoolCounters, now: float) -> CellSignals | None:
        """The signals by these totals; None until there is something to compare them with."""
        self._samples.append((now, counters))
        while len(self._samples) > 2 and now - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        since, earlier = self._samples[0]
        if now - since < _SHORTEST_S:
            return None
        return _signals(counters, earlier, now - since, self._max_group_size)


def _signals(
    counters: PoolCounters, earlier: PoolCounters, seconds: float, max_group_size: int
) -> CellSignals:
    staying = [replica for replica in counters.replicas if not replica.is_draining]
    targets = [replica for replica in staying if replica.role is Role.TARGET]
    drafts = [replica for replica in staying if replica.role is Role.DRAFT]
    before = {replica.replica_id: replica for replica in earlier.replicas}
    num_rounds = counters.num_sequence_rounds - earlier.num_sequence_rounds
    num_drafted = counters.num_draft_rows - earlier.num_draft_rows
    return CellSignals(
        num_targets=len(targets),
        num_drafts=len(drafts),
        num_waiting=counters.num_waiting,
        num_running=counters.num_running,
        target_load=sum(
            _busy(one, before, seconds) * _fill(one, before, max_group_size) for one in targets
        ),
        kv_tokens=sum(_used_blocks(one) * one.block_size for one in targets),
        waiting_tokens=counters.num_waiting_tokens,
        kv_tokens_per_target=_mean(one.num_blocks * one.block_size for one in targets),
        num_wanting=counters.num_undrafted + sum(draft.num_sequences for draft in drafts),
        num_starved=counters.num_undrafted + counters.num_draft_queued,
        draft_busy=sum(_busy(one, before, seconds) for one in drafts),
        draft_kv=sum(_used_blocks(one) / one.num_blocks for one in drafts),
        num_rounds=num_rounds,
        drafted_share=num_drafted / num_rounds if num_rounds else 0.0,
    )


def _busy(replica: ReplicaCounters, before: Mapping[str, ReplicaCounters], seconds: float) -> float:
    """Nothing of a replica that was not there: what it did before is not known."""
    earlier = before.get(replica.replica_id)
    if earlier is None or replica.busy_s < earlier.busy_s:
        return 0.0
    return min((replica.busy_s - earlier.busy_s) / seconds, 1.0)


def _fill(
    replica: ReplicaCounters, before: Mapping[str, ReplicaCounters], max_group_size: int
) -> float:
    earlier = before.get(replica.replica_id)
    if earlier is None or replica.num_leases <= earlier.num_leases:
        return 0.0
    rows = replica.num_rows - earlier.num_rows
    return rows / (replica.num_leases - earlier.num_leases) / max_group_size


def _used_blocks(replica: ReplicaCounters) -> int:
    return replica.num_blocks - replica.num_free_blocks


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0
