"""What a run took is the same from /metrics and from PoolStatus, and only what it took itself."""

from __future__ import annotations

import pytest

from deployments.cli.bench.stage_figures import (
    middle_stages,
    stage_figures,
    stage_rows,
    stages_of_page,
    stages_of_status,
)
from deployments.observability.metrics.export_prometheus import MetricsCompat, metrics_page
from deployments.observability.metrics.histogram import BOUNDS_S, Histogram
from deployments.observability.metrics.ingress_times import IngressTimes
from deployments.observability.metrics.round_stages import Stage, StageHistograms
from deployments.observability.metrics.stage_statuses import stage_statuses
from specdec.v1 import coordination_pb2 as internal_pb
from specdec.v1 import generation_pb2 as pb
from specdec_core.messages import Role


def status(wire_s: list[float], num_pieces: int) -> pb.PoolStatusResponse:
    histogram = Histogram()
    for seconds in wire_s:
        histogram.observe(seconds)
    stages: StageHistograms = {(Role.TARGET, Stage.WIRE): histogram}
    ingress = IngressTimes()
    ingress.add(internal_pb.IngressTimes(num_pieces=num_pieces, detokenise_s=0.0001 * num_pieces))
    return pb.PoolStatusResponse(stages=stage_statuses(stages, ingress), stage_bounds_s=BOUNDS_S)


def test_the_page_and_the_status_tell_the_same() -> None:
    told = status([0.0012, 0.0012, 0.4, 3.0], 5)
    page = metrics_page(told, "m", MetricsCompat.VLLM).decode()
    found = stages_of_page(page)
    assert found == stages_of_status(told)
    assert found is not None
    assert set(found) == {"target wire", "ingress detokenise", "ingress respond"}


def test_a_run_is_what_came_between() -> None:
    before = stages_of_status(status([0.5] * 100, 7))
    after = stages_of_status(status([0.5] * 100 + [0.0012] * 10, 17))
    assert before is not None
    assert after is not None
    found = stage_figures(before, after)
    assert found["target wire"]["count"] == 10
    assert found["target wire"]["mean_ms"] == pytest.approx(1.2)
    for share in ("p50_ms", "p90_ms", "p99_ms"):
        assert 1.0 <= found["target wire"][share] <= 1.25
    assert found["ingress detokenise"]["count"] == 10
    assert found["ingress detokenise"]["seconds"] == pytest.approx(0.001)
    assert stage_figures(after, after) == {}


def test_rows_and_medians_have_the_figures_of_every_stage() -> None:
    none = stages_of_status(status([], 0))
    assert none is not None
    runs = [
        stage_figures(none, stages_of_status(status([seconds], 1)) or {})
        for seconds in (0.001, 0.003, 0.1)
    ]
    middle = middle_stages(runs)
    assert middle["target wire"]["mean_ms"] == pytest.approx(3.0)
    assert dict(stage_rows(middle)) == {
        "target wire P50/P90/P99 (ms):": "2.75 / 2.95 / 3.00",
        "ingress detokenise mean (ms):": "0.100",
        "ingress respond mean (ms):": "0.000",
    }


def test_a_page_of_another_server_has_no_stages() -> None:
    assert stages_of_page("vllm:num_requests_running 0.0\n") is None
