"""The signals of a cell in the last seconds. The autoscaler knows nothing else of the cell.

Loads are in replicas: two targets that are busy half of the time have a load of 1.0. A replica that
has just come, and has not been measured yet, then changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

from deployments.observability.metrics.rates import Growth, Name, Reading, Source, Totals, by_source
from specdec_core.messages import Role
from specdec_core.scheduler import ReplicaCounters, SchedulerCounters

WINDOW_S = 5.0
_SHORTEST_S = 0.5
"""Minimum seconds of a share. Shorter shares are noise, because a pass may take as long."""
_ALL_REPLICAS = 0
"""Source of counts for all replicas together. The sources of replicas are their IDs, words."""
_NOTHING = Growth({}, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSignals:
    """The signals as numbers, so that they travel as a replica's statistics."""

    num_targets: float
    """Targets that stay. Leaving targets are counted nowhere."""
    num_drafts: float
    num_waiting: float
    """Requests that wait for admission."""
    num_running: float
    target_load: float
    """Share of the time that a target is busy, times how full its groups are, summed over all
    targets."""
    kv_tokens: float
    """Positions reserved on the targets."""
    waiting_tokens: float
    """Positions that the waiting requests need to be admitted."""
    kv_tokens_per_target: float
    num_wanting: float
    """Admitted sequences for which a draft replica is useful."""
    num_starved: float
    """Number of these sequences that have no draft replica, or wait for its next pass."""
    draft_busy: float
    """Share of the time that a draft is busy, summed over all drafts."""
    draft_kv: float
    """Share of a draft's KV cache that is reserved, summed over all drafts."""
    num_rounds: float
    """Rounds of sequences."""
    drafted_share: float
    """Share of those rounds in which a draft replica was asked for a proposal."""

    @property
    def num_live(self) -> float:
        return self.num_waiting + self.num_running

    def as_stats(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_stats(cls, stats: Mapping[str, float]) -> CellSignals | None:
        """Return the signals, or None if something is missing."""
        names = [field.name for field in fields(cls)]
        if not all(name in stats for name in names):
            return None
        return cls(**{name: stats[name] for name in names})


class SignalMeter:
    """Turns totals of the scheduler into shares of the last seconds. Time is an argument."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._readings: deque[Reading] = deque()

    def note(self, counters: SchedulerCounters, now: float) -> CellSignals | None:
        """Return the signals from these totals. None until there are earlier totals to compare."""
        reading = _reading(counters, now)
        self._readings.append(reading)
        while len(self._readings) > 2 and now - self._readings[1].at_s >= self._window_s:
            self._readings.popleft()
        earlier = self._readings[0]
        if now - earlier.at_s < _SHORTEST_S:
            return None
        return _signals(counters, by_source(earlier, reading))


def _reading(counters: SchedulerCounters, now: float) -> Reading:
    rounds: dict[Name, float] = {
        "rounds": counters.num_sequence_rounds,
        "drafted": counters.num_draft_rows,
    }
    sources: dict[Source, Totals] = {
        one.replica_id: Totals(
            {"busy_s": one.busy_s, "rows": one.num_rows, "leases": one.num_leases}
        )
        for one in counters.replicas
    }
    return Reading(now, {_ALL_REPLICAS: Totals(rounds), **sources})


def _signals(counters: SchedulerCounters, lately: Mapping[Source, Growth]) -> CellSignals:
    staying = [replica for replica in counters.replicas if not replica.is_draining]
    targets = [replica for replica in staying if replica.role is Role.TARGET]
    drafts = [replica for replica in staying if replica.role is Role.DRAFT]
    did = {one.replica_id: lately.get(one.replica_id, _NOTHING) for one in staying}
    num_rounds, num_drafted = lately[_ALL_REPLICAS]["rounds"], lately[_ALL_REPLICAS]["drafted"]
    return CellSignals(
        num_targets=len(targets),
        num_drafts=len(drafts),
        num_waiting=counters.num_waiting,
        num_running=counters.num_running,
        target_load=sum(
            _busy(did[one.replica_id]) * _fill(did[one.replica_id], one.max_group_size)
            for one in targets
        ),
        kv_tokens=sum(_used_blocks(one) * one.block_size for one in targets),
        waiting_tokens=counters.num_waiting_tokens,
        kv_tokens_per_target=_mean(one.num_blocks * one.block_size for one in targets),
        num_wanting=counters.num_undrafted + sum(draft.num_sequences for draft in drafts),
        num_starved=counters.num_undrafted + counters.num_draft_queued,
        draft_busy=sum(_busy(did[one.replica_id]) for one in drafts),
        draft_kv=sum(_used_blocks(one) / one.num_blocks for one in drafts),
        num_rounds=num_rounds,
        drafted_share=num_drafted / num_rounds if num_rounds else 0.0,
    )


def _busy(did: Growth) -> float:
    return min(did.per_second(did["busy_s"]) or 0.0, 1.0)


def _fill(did: Growth, max_group_size: int) -> float:
    return did["rows"] / did["leases"] / max_group_size if did["leases"] else 0.0


def _used_blocks(replica: ReplicaCounters) -> int:
    return replica.num_blocks - replica.num_free_blocks


def _mean(values: Iterable[float]) -> float:
    present = list(values)
    return sum(present) / len(present) if present else 0.0
