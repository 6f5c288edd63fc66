"""What boards and alerts read is on Ray's metrics port, under the very name that they read."""

from __future__ import annotations

import time
import urllib.request

import httpx
import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families as parse

from deployments.observability.metrics.registry import ray_labels
from tests.dashboards.committed import named_on_ray
from tests.service.conftest import Service

pytestmark = pytest.mark.slow

Found = dict[str, list[dict[str, str]]]
"""Labels of every series, by name."""


def scraped() -> tuple[Found, dict[str, float]]:
    """Labels, and values added up."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read().decode()
    ours = [line for line in text.splitlines() if "specdec" in line or "gen_ai" in line]
    labels: Found = {}
    values: dict[str, float] = {}
    for family in parse("\n".join(ours) + "\n"):
        for sample in family.samples:
            labels.setdefault(sample.name, []).append(sample.labels)
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return labels, values


def test_one_request_and_everything_is_exported_that_boards_and_alerts_read(
    service: Service, http: httpx.Client
) -> None:
    service.until_complete()
    body = {"prompt": "abcabcabc", "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    http.post("/v1/completions", json=body).raise_for_status()
    named = named_on_ray()
    deadline = time.monotonic() + 90
    while True:
        found, values = scraped()
        is_counted = values.get("ray_specdec_e2e_request_latency_seconds_count", 0) > 0
        if named <= set(found) and is_counted:
            break
        assert time.monotonic() < deadline, named - set(found)
        time.sleep(0.5)
    for name in named:
        expected = ray_labels()[name]
        for labels in found[name]:
            assert expected <= set(labels), (name, labels)
            assert labels["model_name"] == "tiny"
            assert labels["application"] == "specdec"
    for name in found:
        if name.startswith("ray_specdec_"):
            assert name in ray_labels()
    assert values["ray_specdec_diverged_requests_total"] == 0
    assert values["ray_specdec_coordinator_start_time_seconds"] > 1.7e9
