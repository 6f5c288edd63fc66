"""Several cells' totals as one: what adds up, what does not, and which cell said what."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as parse

from deployments.cli.bench.speculation import counts_of_page
from deployments.ingress.cells.merging import merged_state, merged_status
from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import metrics_page
from specdec.v1 import coordination_pb2
from specdec.v1 import generation_pb2 as pb


def status(scale: int) -> pb.PoolStatusResponse:
    """Of a cell that has done `scale` times as much as the smallest."""
    return pb.PoolStatusResponse(
        epoch=7 * scale,
        replicas=[
            pb.ReplicaStatus(replica_id=f"t{scale}", role="target", num_blocks=10, num_rows=scale)
        ],
        num_waiting=scale,
        num_running=2 * scale,
        counters={"num_groups": 10 * scale, "num_proposed_rounds": scale, f"only{scale}": 1},
        max_group_wait_s=0.1 * scale,
        accepted_per_position=[5 * scale] * scale,
        drafted_per_position=[7 * scale] * scale,
        requests=[
            pb.HistogramStatus(name="both", kind="input", sum=scale, buckets=[scale, 0, 1]),
            pb.HistogramStatus(name="both", kind="output", sum=1, buckets=[0, 0, scale]),
        ],
        group_sizes=[0] + [scale] * scale,
        audit=pb.AuditStatus(num_audited=scale, num_diverged=1, num_pending=2),
        clients=[
            pb.ClientStatus(name="both", num_tokens=scale),
            pb.ClientStatus(name=f"client {scale}", num_requests=scale),
        ],
        stages=[
            pb.StageStatus(role="target", stage="wire", count=2, sum_s=scale, buckets=[1, 0, 1]),
            pb.StageStatus(role="ingress", stage="respond", count=scale, sum_s=0.5),
        ],
        stage_bounds_s=[0.1, 0.2],
    )


def merged() -> pb.PoolStatusResponse:
    return merged_status({0: status(1), 2: status(3)})


def test_counts_add_and_the_longest_wait_is_the_longest() -> None:
    found = merged()
    assert (found.num_waiting, found.num_running, found.max_group_wait_s) == (4, 8, 0.1 * 3)
    assert found.counters == {
        "num_groups": 40,
        "num_proposed_rounds": 4,
        "only1": 1,
        "only3": 1,
    }
    assert list(found.accepted_per_position) == [20, 15, 15]
    assert list(found.drafted_per_position) == [28, 21, 21]
    assert list(found.requests) == [
        pb.HistogramStatus(name="both", kind="input", sum=4, buckets=[4, 0, 2]),
        pb.HistogramStatus(name="both", kind="output", sum=2, buckets=[0, 0, 4]),
    ]
    assert list(found.group_sizes) == [0, 4, 3, 3]
    assert found.audit == pb.AuditStatus(num_audited=4, num_diverged=2, num_pending=4)
    assert [(c.name, c.num_tokens, c.num_requests) for c in found.clients] == [
        ("both", 4, 0),
        ("client 1", 0, 1),
        ("client 3", 0, 3),
    ]
    wire, respond = found.stages
    assert (wire.count, wire.sum_s, list(wire.buckets)) == (4, 4.0, [2, 0, 2])
    assert (respond.role, respond.count, respond.sum_s, list(respond.buckets)) == (
        *("ingress", 4, 1.0),
        [],
    )


def test_every_replica_and_every_cell_is_told_by_itself() -> None:
    found = merged()
    assert [(one.replica_id, one.cell) for one in found.replicas] == [("t1", 0), ("t3", 2)]
    assert [(one.cell, one.epoch) for one in found.cells] == [(0, 7), (2, 21)]
    assert found.cells[1].counters == status(3).counters


def test_the_page_has_a_series_for_every_cell() -> None:
    page = metrics_page(merged(), "m", MetricsCompat.VLLM).decode()
    found = {
        (sample.name, sample.labels["cell"]): sample.value
        for family in parse(page)
        for sample in family.samples
        if sample.name in ("specdec_groups_total", "vllm:num_requests_running")
    }
    assert found == {
        ("specdec_groups_total", "0"): 10.0,
        ("specdec_groups_total", "2"): 30.0,
        ("vllm:num_requests_running", "0"): 2.0,
        ("vllm:num_requests_running", "2"): 6.0,
    }
    assert page.count("# TYPE specdec_groups_total counter") == 1
    assert b"cell=" not in metrics_page(status(1), "m", MetricsCompat.VLLM)


def test_the_state_promises_what_every_serving_cell_keeps() -> None:
    def state(
        numerics: str, max_model_len: int, num_targets: int = 1
    ) -> coordination_pb2.PoolState:
        return coordination_pb2.PoolState(
            num_targets=num_targets,
            num_drafts=2,
            numerics=numerics,
            max_model_len=max_model_len,
            model_digest="digest",
            fingerprint=numerics,
        )

    assert merged_state([None, None]) is None
    empty = state("fast", 0, num_targets=0)
    both = merged_state([state("exact", 512), None, state("fast", 256), empty])
    assert both is not None
    assert (both.num_targets, both.num_drafts, both.max_model_len) == (2, 6, 256)
    assert (both.numerics, both.fingerprint, both.model_digest) == (
        "fast",
        "exact | fast",
        "digest",
    )
    one = merged_state([state("exact", 512), empty])
    assert one is not None
    assert (one.numerics, one.max_model_len) == ("exact", 512)
    nobody = merged_state([empty])
    assert nobody is not None
    assert (nobody.num_targets, nobody.max_model_len, nobody.fingerprint) == (0, 0, "")


def test_bench_reads_the_sum_of_all_cells() -> None:
    counts = counts_of_page(metrics_page(merged(), "m", MetricsCompat.NONE).decode())
    assert counts is not None
    assert counts.num_drafts == 4
    assert counts.accepted_per_position == (20, 15, 15)
