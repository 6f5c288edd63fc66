"""Metrics of the coordinator, exported by Ray on every node's metrics port as `ray_<name>`."""

from __future__ import annotations

from collections import Counter

from ray.util import metrics

from deployments.audit import AuditCounts
from specdec_core.models.numerics import Numerics

_LABEL = "numerics"


class AuditMetrics:
    """Turns the auditor's totals into counters that only ever grow."""

    def __init__(self) -> None:
        self._audited = metrics.Counter(
            "specdec_audited_requests_total",
            "Finished requests that were replayed without speculation and compared.",
            (_LABEL,),
        )
        self._diverged = metrics.Counter(
            "specdec_diverged_requests_total",
            "Those whose replay gave another token; with exact numerics a fault.",
            (_LABEL,),
        )
        self._skipped = metrics.Counter(
            "specdec_audits_skipped_total",
            "Sampled requests that were not replayed to the end.",
        )
        self._told = AuditCounts()

    def update(self, counts: AuditCounts) -> None:
        """Report what came since the last call."""
        told = self._told
        _increase(self._audited, counts.audited - told.audited)
        _increase(self._diverged, counts.diverged - told.diverged)
        if counts.num_skipped > told.num_skipped:
            self._skipped.inc(counts.num_skipped - told.num_skipped)
        self._told = AuditCounts(
            audited=Counter(counts.audited),
            diverged=Counter(counts.diverged),
            num_skipped=counts.num_skipped,
        )


def _increase(metric: metrics.Counter, by_numerics: Counter[Numerics]) -> None:
    for numerics, count in by_numerics.items():
        metric.inc(count, {_LABEL: numerics.value})
