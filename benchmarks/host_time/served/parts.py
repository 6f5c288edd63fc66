"""Compute the parts of a round from two snapshots of a service.

A round lasts from one answer of the target to the next. Its parts add up to its length. Waiting for
a core is taken out of the part in which it happened and is a separate part, because a GPU's host
has more cores than this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.host_time.served.snapshot import Snapshot
from benchmarks.host_time.served.waiting import CpuUse
from specdec_core.messages import Role

_COUNTED = {Role.TARGET: "rounds", Role.DRAFT: "drafts"}
"""Names of the numbers of leases, by role."""
TOLERANCE = 0.05
"""Share of a round that its parts may miss or exceed."""


class Part(StrEnum):
    """Part of a round."""

    DEVICE = "device"
    """The modelled passes of the target."""
    BEFORE = "plan and pack"
    """In the target's thread, from the lease to the launch of its pass."""
    AFTER = "choose and settle"
    """In the target's thread, from the end of the pass to the lease's result."""
    REPLICA = "replica"
    """Threads and messages in the target's process, besides."""
    WIRE = "wire"
    """Both ways between coordinator and target."""
    SCHEDULE = "schedule"
    """In the coordinator, from an answer to the lease of target or draft that it made possible, if
    no lease is under way there."""
    DRAFT_DEVICE = "draft: device"
    """The modelled passes of the draft. It is 0 without one, as are the others of the draft."""
    DRAFT_HOST = "draft: host"
    """All else from the draft's lease to its answer: threads, messages, wire."""
    SHARED = "draft beside target"
    """Below 0: time in which a lease of the draft and one of the target are both under way, which
    the other parts count twice."""
    WAITING = "waiting for a core"
    """In the threads that a round waits for, as far as it is known that the round did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Average round of one cell. Times are in seconds."""

    num_rounds: float
    """Leases of the target that were counted."""
    whole_s: float
    """Length of a round, from answer to answer, by the benchmark's clock."""
    parts_s: Mapping[Part, float]
    use: Mapping[str, CpuUse]
    """CPU time, and waiting for a core, of each process a round."""
    drafted: float
    """Drafted tokens that were checked, a round."""
    accepted: float

    @property
    def missing_s(self) -> float:
        """The part of the whole that no part names; below 0 if parts overlap."""
        return self.whole_s - sum(self.parts_s.values())

    @property
    def adds_up(self) -> bool:
        """Whether the parts make the whole within TOLERANCE."""
        return abs(self.missing_s) <= TOLERANCE * self.whole_s

    @property
    def host_s(self) -> float:
        """Time in which no device works and no thread waits for a core."""
        apart = (Part.DEVICE, Part.DRAFT_DEVICE, Part.SHARED, Part.WAITING)
        return sum(seconds for part, seconds in self.parts_s.items() if part not in apart)

    def scaled(self, factor: float) -> Round:
        """Return the round of a host that takes `factor` times as long for everything."""
        return Round(
            num_rounds=self.num_rounds,
            whole_s=factor * self.whole_s,
            parts_s={part: factor * seconds for part, seconds in self.parts_s.items()},
            use={name: use.times(factor) for name, use in self.use.items()},
            drafted=self.drafted,
            accepted=self.accepted,
        )


def round_between(before: Snapshot, after: Snapshot) -> Round:
    """Return what a round took between two snapshots of one service."""
    leases = _grown(before.leases, after.leases)
    num_rounds = leases["rounds"]
    assert num_rounds, "streams were under way"
    use = {name: used.since(before.use.get(name, CpuUse())) for name, used in after.use.items()}
    executions = {
        role: _scaled(_grown(before.executions[role], after.executions[role]), leases[counted])
        for role, counted in _COUNTED.items()
    }
    parts = _gross(leases, executions)
    parts[Part.WAITING] = _take_waiting(parts, executions, leases["waited_s"])
    speculation = after.speculation - before.speculation
    return Round(
        num_rounds=num_rounds,
        whole_s=(after.at_s - before.at_s) / num_rounds,
        parts_s={part: parts[part] / num_rounds for part in Part},
        use={name: used.times(1 / num_rounds) for name, used in use.items()},
        drafted=speculation.num_draft_tokens / num_rounds,
        accepted=speculation.num_accepted_tokens / num_rounds,
    )


def _gross(
    leases: Mapping[str, float], executions: Mapping[Role, Mapping[str, float]]
) -> dict[Part, float]:
    """Return all parts with the waiting that is in them, in seconds of all rounds."""
    target, draft_device_s = executions[Role.TARGET], executions[Role.DRAFT]["device_s"]
    device_s, before_s = target["device_s"], target["before_s"]
    after_s = target["between_s"] + target["after_s"]
    return {
        Part.DEVICE: device_s,
        Part.BEFORE: before_s,
        Part.AFTER: after_s,
        Part.REPLICA: leases["held_s"] - device_s - before_s - after_s,
        Part.WIRE: leases["wire_s"],
        Part.SCHEDULE: leases["schedule_s"],
        Part.DRAFT_DEVICE: draft_device_s,
        Part.DRAFT_HOST: leases["draft_s"] - draft_device_s,
        Part.SHARED: -leases["shared_s"],
    }


def _take_waiting(
    parts: dict[Part, float], executions: Mapping[Role, Mapping[str, float]], schedule_s: float
) -> float:
    """Take waiting out of the parts in which it happened; return how much was taken."""
    target, draft = executions[Role.TARGET], executions[Role.DRAFT]
    return (
        _take(parts, (Part.SCHEDULE,), schedule_s)
        + _take(parts, (Part.AFTER, Part.BEFORE), target["waited_s"])
        + _take(parts, (Part.REPLICA, Part.WIRE), target["gap_waited_s"])
        + _take(parts, (Part.DRAFT_HOST,), draft["waited_s"] + draft["gap_waited_s"])
    )


def _take(parts: dict[Part, float], names: Sequence[Part], seconds: float) -> float:
    """Take `seconds` out of the named parts, the first ones first, and return what was there."""
    taken = 0.0
    for name in names:
        share = min(max(parts[name], 0.0), seconds - taken)
        parts[name] -= share
        taken += share
    return taken


def _grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in after.items()}


def _scaled(executions: Mapping[str, float], num_leases: float) -> dict[str, float]:
    """Return the sums over as many leases as the coordinator has counted meanwhile."""
    factor = num_leases / max(executions["leases"], 1)
    return {name: factor * value for name, value in executions.items()}
