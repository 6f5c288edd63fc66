"""All metrics, and the names under which they are exported."""

from __future__ import annotations

from deployments.observability.metrics.families import cell, requests, rounds
from deployments.observability.metrics.metric import Metric

METRICS: tuple[Metric, ...] = (*requests.METRICS, *rounds.METRICS, *cell.METRICS)

MODEL_NAME, APPLICATION, CELL = "model_name", "application", "cell"
PAGE_LABELS = (MODEL_NAME, CELL)
"""Labels of every series of /metrics. A service of one cell has no cell label."""
RAY_LABELS = (MODEL_NAME, APPLICATION, CELL)
"""Labels of every series of ours on Ray's port, in addition to Ray's own."""
RAY_PREFIX = "ray_"
"""Prefix of names on Ray's port. Ray adds no suffix to gauges; see exporting.py."""

_SAMPLE_LABELS: dict[str, tuple[str, ...]] = {
    name: labels for metric in METRICS for name, labels in metric.sample_labels.items()
}


def ray_labels() -> dict[str, frozenset[str]]:
    """Return the labels of each of our samples on Ray's port, by the sample's name."""
    return {
        RAY_PREFIX + name: frozenset((*labels, *RAY_LABELS))
        for name, labels in _SAMPLE_LABELS.items()
    }


def on_ray(sample_name: str) -> str:
    """Return the sample's name on Ray's port. Raises KeyError if no metric has the sample."""
    if sample_name not in _SAMPLE_LABELS:
        raise KeyError(f"no metric has the sample {sample_name}")
    return RAY_PREFIX + sample_name
