"""The registry: names that Prometheus takes and operators chart, one value everywhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from deployments.names import MetricsCompat
from deployments.observability.metrics import exporting as ray_port
from deployments.observability.metrics.export_prometheus import metrics_page
from deployments.observability.metrics.metric import Kind
from deployments.observability.metrics.registry import METRICS, PAGE_LABELS, RAY_LABELS, ray_labels
from specdec.v1 import generation_pb2 as pb
from tests.deployments.metrics.status import full_status

_CHARTED = """
    spec_decode_num_drafts_total spec_decode_num_draft_tokens_total
    spec_decode_num_accepted_tokens_total spec_decode_num_accepted_tokens_per_pos_total
    num_requests_running num_requests_waiting num_requests_waiting_by_reason kv_cache_usage_perc
    prefix_cache_queries_total prefix_cache_hits_total num_preemptions_total prompt_tokens_total
    generation_tokens_total request_success_total time_to_first_token_seconds_bucket
    inter_token_latency_seconds_bucket request_time_per_output_token_seconds_bucket
    e2e_request_latency_seconds_bucket request_queue_time_seconds_bucket
    request_prefill_time_seconds_bucket request_decode_time_seconds_bucket
    admission_rejections_total
"""
CHARTED = _CHARTED.split()
"""Names that boards made for vLLM read."""

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(page: bytes) -> Series:
    found = [sample for family in parse(page.decode()) for sample in family.samples]
    return {(one.name, frozenset(one.labels.items())): one.value for one in found}


def value(found: Series, name: str, **labels: str) -> float:
    """Of the only series of that name with these labels."""
    alike = [v for (n, own), v in found.items() if n == name and set(labels.items()) <= own]
    assert len(alike) == 1, (name, labels, alike)
    return alike[0]


def test_names_are_prometheus_s_and_no_two_metrics_share_a_sample() -> None:
    names = [name for metric in METRICS for name in metric.sample_labels]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    for metric in METRICS:
        assert metric.text.endswith(".")
        assert not set(metric.labels) & {*PAGE_LABELS, *RAY_LABELS, "le"}
        assert not metric.name.endswith(("_total", "_bucket", "_count", "_sum"))
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.bounds)
        assert list(metric.bounds) == sorted(set(metric.bounds))
        assert all(bound > 0 for bound in metric.bounds)


@pytest.mark.parametrize("prefix", ["specdec_", "vllm:"])
def test_what_operators_chart_is_there_before_anything_has_happened(prefix: str) -> None:
    page = metrics_page(pb.PoolStatusResponse(), "m", MetricsCompat.VLLM)
    found = {name for name, _ in series(page)}
    of_what_came = {"prefix_cache_queries_total", "prefix_cache_hits_total"} | {
        "spec_decode_num_accepted_tokens_per_pos_total"
    }
    assert found >= {prefix + name for name in set(CHARTED) - of_what_came}
    after = {name for name, _ in series(metrics_page(full_status(), "m", MetricsCompat.VLLM))}
    assert after >= {prefix + name for name in CHARTED}


def test_values_are_those_of_the_snapshot() -> None:
    found = series(metrics_page(full_status(), "m", MetricsCompat.NONE))
    for name, labels, expected in (
        ("specdec_num_requests_waiting_by_reason", {"reason": "capacity"}, 3),
        ("specdec_num_requests_waiting_by_reason", {"reason": "no_target"}, 0),
        ("specdec_kv_cache_usage_perc", {}, 0.25),
        ("specdec_request_success_total", {"finished_reason": "stop"}, 7),
        ("specdec_request_success_total", {"finished_reason": "length"}, 0),
        ("specdec_admission_rejections_total", {"reason": "queue_full"}, 2),
        ("specdec_failed_requests_total", {"kind": "deadline"}, 1),
        ("specdec_draft_rounds_total", {"k": "0"}, 10),
        ("specdec_draft_rounds_total", {"k": "1"}, 0),
        ("specdec_draft_rounds_total", {"k": "2"}, 20),
        ("specdec_draft_rounds_total", {"k": "3"}, 70),
        ("specdec_group_size_bucket", {"le": "1"}, 10),
        ("specdec_group_size_bucket", {"le": "2"}, 20),
        ("specdec_group_size_bucket", {"le": "4"}, 40),
        ("specdec_group_size_sum", {}, 90),
        ("specdec_leases_answered_total", {"role": "draft"}, 2),
        ("specdec_leases_granted_total", {"role": "target"}, 40),
        ("specdec_leases_granted_total", {"role": "draft"}, 30),
        ("specdec_leases_expired_total", {"role": "target"}, 0),
        ("specdec_leases_expired_total", {"role": "draft"}, 2),
        ("specdec_k_decisions_total", {"cause": "goodput"}, 60),
        ("specdec_k_decisions_total", {"cause": "off"}, 0),
        ("specdec_replay_divergences_total", {}, 3),
        ("specdec_replicas", {"role": "target"}, 1),
        ("specdec_replica_is_fenced", {"replica_id": "d0"}, 1),
        ("specdec_diverged_requests_total", {"numerics": "exact"}, 1),
        ("specdec_diverged_requests_total", {"numerics": "fast"}, 0),
        ("specdec_audits_skipped_total", {}, 3),
        ("specdec_coordinator_start_time_seconds", {}, 1_000_000.5),
        ("specdec_k_policy", {"figure": "last_steps"}, 4.0),
        ("specdec_k_policy", {"figure": "mean_k"}, 250 / 90),
        ("specdec_time_to_first_token_seconds_count", {}, 3),
        ("specdec_time_to_first_token_seconds_bucket", {"le": "2560"}, 1),
        ("specdec_time_to_first_token_seconds_bucket", {"le": "+Inf"}, 3),
        ("gen_ai_client_token_usage_count", {"gen_ai_token_type": "input"}, 3),
        ("gen_ai_client_token_usage_count", {"gen_ai_token_type": "output"}, 0),
        ("specdec_client_prompt_tokens_total", {"client": "someone"}, 600),
        ("specdec_client_cached_prompt_tokens_total", {"client": "someone"}, 80),
        ("specdec_client_generation_tokens_total", {"client": "someone"}, 400),
        ("specdec_client_prompt_tokens_total", {"client": "none"}, 100),
        ("specdec_client_cached_prompt_tokens_total", {"client": "none"}, 0),
    ):
        assert value(found, name, **labels) == expected, (name, labels)


def test_without_a_target_requests_wait_for_one() -> None:
    status = full_status()
    status.replicas[0].is_draining = True
    found = series(metrics_page(status, "m", MetricsCompat.NONE))
    assert value(found, "specdec_num_requests_waiting_by_reason", reason="no_target") == 3


class FakeGauge:
    """Ray's, as far as it is used; refuses what Ray refuses."""

    told: Series

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self._name, self._keys = name, tag_keys
        self._defaults: dict[str, str] = {}

    def set_default_tags(self, tags: Mapping[str, str]) -> FakeGauge:
        assert set(tags) <= set(self._keys)
        self._defaults = dict(tags)
        return self

    def set(self, value: float, tags: Mapping[str, str]) -> None:
        labels = self._defaults | tags
        assert set(labels) == set(self._keys)
        assert type(value) is float
        self.told[f"ray_{self._name}", frozenset(labels.items())] = value


def test_ray_s_port_has_every_series_of_the_page(monkeypatch: Any) -> None:
    monkeypatch.setattr(ray_port.metrics, "Gauge", FakeGauge)
    FakeGauge.told = {}
    common = {"model_name": "m", "application": "a", "cell": "0"}
    asyncio.run(ray_port.RayPort(common).export(full_status()))
    page = series(metrics_page(full_status(), "m", MetricsCompat.NONE))
    expected = {
        (f"ray_{name}", labels | {("application", "a"), ("cell", "0")}): value
        for (name, labels), value in page.items()
    }
    assert FakeGauge.told == expected
    for name, labels in FakeGauge.told:
        assert {label for label, _ in labels} == ray_labels()[name]
