"""Looks at the pool once a second for everybody who asks for its signals.

Every target of a cell reports the same, each by its own clock: by themselves sixteen of them would
count the whole pool sixteen times a second.
"""

from __future__ import annotations

from collections.abc import Callable

from deployments.autoscaling.signals import CellSignals, SignalMeter
from specdec_core.scheduler import SchedulerCounters

FRESH_S = 0.9
"""A report is as old at most; a little less than the second between two of one target's, so that
one alone gets a new one each time."""


class SignalSampler:
    """One cell's. Time is an argument."""

    def __init__(self, read: Callable[[], SchedulerCounters], meter: SignalMeter) -> None:
        self._read = read
        self._meter = meter
        self._looked_at: float | None = None
        self._signals: CellSignals | None = None

    def signals(self, now: float) -> CellSignals | None:
        """None until there are two looks to compare."""
        if self._looked_at is None or now - self._looked_at >= FRESH_S:
            self._signals = self._meter.note(self._read(), now)
            self._looked_at = now
        return self._signals
