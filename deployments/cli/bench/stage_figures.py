"""Compute the time of a run's stages from a server's totals before and after the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from deployments.names import Part
from deployments.observability.metrics.families.rounds import ANSWER_STAGE, ROUND_STAGE
from deployments.observability.metrics.histogram import quantile
from specdec.v1 import generation_pb2 as pb

StageFigures = dict[str, dict[str, float]]
"""Count, seconds and milliseconds per passage, by stage as "role stage"."""
_SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals:
    """Totals of one stage."""

    count: float = 0.0
    sum_s: float = 0.0
    at_most: tuple[tuple[float, float], ...] = ()
    """Bounds in seconds, ascending to infinity, each with how many took at most so long. Empty
    where only the sum is known."""

    def since(self, earlier: StageTotals) -> StageTotals:
        before = dict(earlier.at_most)
        return StageTotals(
            count=self.count - earlier.count,
            sum_s=self.sum_s - earlier.sum_s,
            at_most=tuple((bound, n - before.get(bound, 0.0)) for bound, n in self.at_most),
        )

    def figures(self) -> dict[str, float]:
        told = {
            "count": self.count,
            "seconds": self.sum_s,
            "mean_ms": 1000 * self.sum_s / self.count,
        }
        if not self.at_most:
            return told
        bounds, counts = zip(*self.at_most, strict=True)
        buckets = [int(n - below) for n, below in zip(counts, (0.0, *counts), strict=False)]
        finite = bounds[:-1]
        return told | {
            name: 1000 * quantile(finite, buckets, share) for name, share in _SHARES.items()
        }


Stages = dict[str, StageTotals]


def stages_of_page(page: str) -> Stages | None:
    """Return a server's totals from its /metrics, summed over all cells. None if the page has
    none."""
    lines = [line for line in page.splitlines() if line.startswith((ROUND_STAGE, ANSWER_STAGE))]
    found: dict[str, dict[str, Any]] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            role = sample.labels.get("role", Part.INGRESS)
            name = f"{role} {sample.labels['stage']}"
            own = found.setdefault(name, {"at_most": Counter(), "count": 0.0, "sum": 0.0})
            kind = sample.name.rpartition("_")[2]
            if kind == "bucket":
                own["at_most"][float(sample.labels["le"])] += sample.value
            elif kind in own:
                own[kind] += sample.value
    return {name: _totals(own) for name, own in found.items()} or None


def _totals(own: Mapping[str, Any]) -> StageTotals:
    return StageTotals(
        count=own["count"], sum_s=own["sum"], at_most=tuple(sorted(own["at_most"].items()))
    )


def stages_of_status(status: pb.PoolStatusResponse) -> Stages | None:
    """Return a server's totals from PoolStatus. None if the message has none."""
    found = {f"{one.role} {one.stage}": _of_message(one, status) for one in status.stages}
    return found or None


def _of_message(message: pb.StageStatus, status: pb.PoolStatusResponse) -> StageTotals:
    at_most, seen = [], 0
    for bound, count in zip((*status.stage_bounds_s, float("inf")), message.buckets, strict=False):
        seen += count
        at_most.append((bound, float(seen)))
    return StageTotals(count=message.count, sum_s=message.sum_s, at_most=tuple(at_most))


def stage_figures(before: Stages, after: Stages) -> StageFigures:
    """Return the figures of the time between two totals. Stages without a passage are left out."""
    passed = ((name, now.since(before.get(name, StageTotals()))) for name, now in after.items())
    return {name: totals.figures() for name, totals in passed if totals.count}


def middle_stages(runs: Sequence[StageFigures]) -> StageFigures:
    """Return the median over the runs of every figure that all of them have."""
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    return {
        name: {key: median(run[name][key] for run in runs) for key in runs[0][name]}
        for name in shared
    }


def stage_rows(found: StageFigures) -> Iterator[tuple[str, str]]:
    """Yield a label and its figures for every stage, as lines of a table."""
    for name, told in found.items():
        if "p50_ms" in told:
            figures = " / ".join(f"{told[key]:.2f}" for key in _SHARES)
            yield f"{name} P50/P90/P99 (ms):", figures
        else:
            yield f"{name} mean (ms):", f"{told['mean_ms']:.3f}"
