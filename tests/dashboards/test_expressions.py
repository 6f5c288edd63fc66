"""The check of expressions finds what is wrong: every seeded error is a fault, and named."""

from __future__ import annotations

import pytest

from deployments.observability.metrics.registry import on_ray
from k8s.monitoring.generate.promql import promql
from tests.dashboards.committed import known
from tests.dashboards.expressions import faults, faults_of_variable

GOOD = (
    "histogram_quantile(0.99, sum by (cell, le) "
    "(rate(ray_specdec_time_to_first_token_seconds_bucket[5m])))"
)


def test_a_good_one_has_no_fault() -> None:
    assert faults(GOOD, known()) == []


@pytest.mark.parametrize(
    ("was", "becomes", "fault"),
    [
        ("first_token", "frist_token", "no metric is called"),
        ("ray_specdec", "specdec", "no metric is called"),
        ("seconds_bucket", "seconds", "no metric is called"),
        ("(cell, le)", "(sell, le)", "grouped by sell"),
        ("(cell, le)", "(cell)", "not grouped by le"),
        ("bucket[", 'bucket{rolle="target"}[', "has no label rolle"),
        ("bucket[5m]", "bucket[5 minutes]", "not PromQL"),
        (")))", "))", "not PromQL"),
        ("histogram_quantile(0.99, ", "histogram_quantil(0.99, ", "not PromQL"),
        ("[5m]", "", "not PromQL"),
        ("_bucket", "_sum", "histogram_quantile of"),
        (
            "time_to_first_token_seconds_bucket",
            "num_requests_running",
            "which is no counter",
        ),
    ],
)
def test_every_seeded_error_is_found(was: str, becomes: str, fault: str) -> None:
    assert was in GOOD
    found = faults(GOOD.replace(was, becomes), known())
    assert any(fault in one for one in found), found


def test_a_variable_names_a_label_that_its_metric_has() -> None:
    assert faults_of_variable("label_values(ray_specdec_replicas, cell)", known()) == []
    for query in (
        "label_values(ray_specdec_replicas, replica_id)",
        "label_values(ray_specdec_replika, cell)",
        "label_value(ray_specdec_replicas, cell)",
    ):
        assert faults_of_variable(query, known())


def test_a_name_that_no_metric_has_cannot_be_written() -> None:
    assert promql("@specdec_groups_total{a='b'}", "c='d'") == (
        "ray_specdec_groups_total{a='b', c='d'}"
    )
    with pytest.raises(KeyError, match="specdec_grups_total"):
        promql("rate(@specdec_grups_total[5m])")
    with pytest.raises(KeyError):
        on_ray("specdec_groups")
