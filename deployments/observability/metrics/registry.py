"""Every metric there is, and the names under which each place exports it."""

from __future__ import annotations

from deployments.observability.metrics.families import cell, requests, rounds
from deployments.observability.metrics.metric import Metric

METRICS: tuple[Metric, ...] = (*requests.METRICS, *rounds.METRICS, *cell.METRICS)

MODEL_NAME, APPLICATION, CELL = "model_name", "application", "cell"
PAGE_LABELS = (MODEL_NAME, CELL)
"""Of every series of /metrics; the cell where there are several."""
RAY_LABELS = (MODEL_NAME, APPLICATION, CELL)
"""Of every series of ours on Ray's port, besides what Ray adds."""
RAY_PREFIX = "ray_"
"""Ray writes gauges under their name, with nothing behind it; see metrics/export_ray.py."""

_SAMPLE_LABELS: dict[str, tuple[str, ...]] = {
    name: labels for metric in METRICS for name, labels in metric.sample_labels.items()
}


def ray_labels() -> dict[str, frozenset[str]]:
    """Everything on Ray's port that is ours: the name of a sample, its labels."""
    return {
        RAY_PREFIX + name: frozenset((*labels, *RAY_LABELS))
        for name, labels in _SAMPLE_LABELS.items()
    }


def on_ray(sample_name: str) -> str:
    """Its name on Ray's port. Raises KeyError for what no metric has."""
    if sample_name not in _SAMPLE_LABELS:
        raise KeyError(f"no metric has the sample {sample_name}")
    return RAY_PREFIX + sample_name
