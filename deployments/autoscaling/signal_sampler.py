"""Samples the scheduler once a second for all callers that ask for its signals.

Every target of a cell reports the same signals, each by its own clock. Without sharing, sixteen
targets would count the whole scheduler sixteen times a second.
"""

from __future__ import annotations

from collections.abc import Callable

from deployments.autoscaling.signals import CellSignals, SignalMeter
from specdec_core.scheduler import SchedulerCounters

FRESH_S = 0.9
"""Maximum age of signals in seconds.

A little less than the second between two reports of one target, so a lone target gets new signals
each time.
"""


class SignalSampler:
    """The sampler of one cell. Time is an argument."""

    def __init__(self, read: Callable[[], SchedulerCounters], meter: SignalMeter) -> None:
        self._read = read
        self._meter = meter
        self._looked_at: float | None = None
        self._signals: CellSignals | None = None

    def signals(self, now: float) -> CellSignals | None:
        """Return the signals. None until there are two looks to compare."""
        if self._looked_at is None or now - self._looked_at >= FRESH_S:
            self._signals = self._meter.note(self._read(), now)
            self._looked_at = now
        return self._signals
