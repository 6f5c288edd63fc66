"""Recovers the signals of a cell from what its replicas report to Serve's controller."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from deployments.autoscaling.signals import CellSignals

MOST_AGE_S = 15.0
"""Maximum age of a report in seconds. Without a younger one the numbers stay.

The clocks of nodes may differ by a part of it.
"""


class Point(Protocol):
    """One value of a metric, as Serve keeps it."""

    timestamp: float
    value: float


def newest_signals(
    metrics: Mapping[str, Mapping[Any, Sequence[Point]]], now: float | None
) -> CellSignals | None:
    """Return the last report of the replica that reported last. A cell's replicas report the same.

    `metrics` are time series by name and replica. None: no report is young enough.
    """
    reports: dict[Any, dict[str, Point]] = {}
    for name, by_replica in metrics.items():
        for replica, series in by_replica.items():
            if series:
                reports.setdefault(replica, {})[name] = series[-1]
    whole = [report for report in reports.values() if _signals(report) is not None]
    newest = max(whole, key=_time, default=None)
    if newest is None or (now or time.time()) - _time(newest) > MOST_AGE_S:
        return None
    return _signals(newest)


def _signals(report: Mapping[str, Point]) -> CellSignals | None:
    return CellSignals.from_stats({name: point.value for name, point in report.items()})


def _time(report: Mapping[str, Point]) -> float:
    """Return the time of the oldest value. A value not reported again is of an earlier report."""
    return min(point.timestamp for point in report.values())
