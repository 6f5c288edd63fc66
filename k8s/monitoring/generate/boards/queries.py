"""Expressions that several dashboards use; see k8s.monitoring.generate.promql."""

from __future__ import annotations

from deployments.observability.metrics.registry import CELL, MODEL_NAME
from k8s.monitoring.generate.promql import quantile

WINDOW = "$__rate_interval"
CELLS = {
    "model": ("specdec_replicas", MODEL_NAME),
    "cell": ("specdec_replicas", CELL),
}


def rate(sample: str, by: str = "") -> str:
    return f"sum by ({by}) (rate(@specdec_{sample}[{WINDOW}]))"


def quantiles(metric: str, *shares: float) -> dict[str, str]:
    return {f"P{100 * share:g}": quantile(share, metric, "", WINDOW) for share in shares}


def one(expr: str, legend: str = "") -> dict[str, str]:
    return {legend: expr}
