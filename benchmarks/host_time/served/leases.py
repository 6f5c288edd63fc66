"""Inside the coordinator's process: the stages of leases, and waiting for a core.

The service's histograms clip a stage below 0 and do not tell which leases ran side by side. So the
stages of each lease are summed up here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from benchmarks.host_time.served.shared_numbers import SharedNumbers
from deployments.coordinator.driver import SchedulerDriver
from deployments.observability.metrics.round_stages import LeaseStages, LeaseTimes, StageHistograms
from specdec_core.messages import Role

_NUM_KEPT = 16
"""Spans of earlier leases: a lease overlaps with one or two."""


class LeaseWatch:
    """Sums up the stages of leases, and the loop's waiting for a core while a replica waits."""

    def __init__(self, told: SharedNumbers, waited: Callable[[], float]) -> None:
        """`waited` returns the seconds that the calling thread has waited for a core so far."""
        self._told = told
        self._waited = waited
        self._at_answer_s: float | None = None
        """The loop's waiting until the last answer; None once a lease has followed it."""
        self._covered: deque[Span] = deque(maxlen=_NUM_KEPT)
        """Times in which earlier leases were under way, none of them twice."""

    def heard(self) -> None:
        """Note that an answer has come."""
        self._at_answer_s = self._waited()

    def sent(self) -> None:
        """Note that a lease leaves. The first one after an answer counts."""
        if self._at_answer_s is not None:
            self._told["waited_s"] += self._waited() - self._at_answer_s
            self._at_answer_s = None

    def answered(self, role: Role, came_s: float, stages: LeaseStages) -> None:
        """Note a lease of draft or target, whose answer came at `came_s`."""
        told, schedule_s = self._told, stages.schedule_s or 0.0
        held_s = stages.replica_s + stages.pass_s
        told["schedule_s"] += schedule_s
        if role is Role.TARGET:
            told["rounds"] += 1
            told["wire_s"] += stages.wire_s
            told["held_s"] += held_s
        else:
            told["drafts"] += 1
            told["draft_s"] += stages.wire_s + held_s
        begun_s = came_s - schedule_s - stages.wire_s - held_s
        told["shared_s"] += self._shared_s(Span(begun_s, came_s))

    def _shared_s(self, lease: Span) -> float:
        """Return how much of a lease's time others had a lease, too."""
        alone = [lease]
        for covered in self._covered:
            alone = [left for span in alone for left in without(span, covered)]
        self._covered += alone
        return lease.end - lease.begin - sum(span.end - span.begin for span in alone)


class Span(NamedTuple):
    """From one time to a later one, in seconds."""

    begin: float
    end: float


def without(span: Span, other: Span) -> list[Span]:
    """Return what `other` leaves of a span: up to two parts."""
    left = Span(span.begin, min(span.end, other.begin))
    right = Span(max(span.begin, other.end), span.end)
    return [part for part in (left, right) if part.begin < part.end]


def watch_leases(watch: LeaseWatch) -> None:
    """Tell `watch` of every answer and lease of this process."""
    begin, read_result, sent = LeaseTimes.__init__, SchedulerDriver._read_result, LeaseTimes.sent
    answered = LeaseTimes.answered
    roles: WeakKeyDictionary[LeaseTimes, Role] = WeakKeyDictionary()

    def watched_begin(
        self: LeaseTimes, role: Role, histograms: StageHistograms, clock: Callable[[], float]
    ) -> None:
        begin(self, role, histograms, clock)
        roles[self] = role

    def watched_read(self: SchedulerDriver) -> None:
        if self._results:
            watch.heard()
        read_result(self)

    def watched_sent(self: LeaseTimes, lease_id: int) -> None:
        sent(self, lease_id)
        watch.sent()

    def watched_answered(
        self: LeaseTimes, lease_id: int, came_s: float, pass_s: float, held_s: float
    ) -> LeaseStages | None:
        stages = answered(self, lease_id, came_s, pass_s, held_s)
        if stages is not None:
            watch.answered(roles[self], came_s, stages)
        return stages

    LeaseTimes.__init__ = watched_begin  # type: ignore[method-assign]
    SchedulerDriver._read_result = watched_read  # type: ignore[method-assign]
    LeaseTimes.sent = watched_sent  # type: ignore[method-assign]
    LeaseTimes.answered = watched_answered  # type: ignore[method-assign]
