"""A snapshot in which nothing is zero."""

from __future__ import annotations

from deployments.observability.metrics.families.requests import COUNTED, OBSERVED
from deployments.observability.metrics.histogram import BOUNDS_S
from specdec.v1 import generation_pb2 as pb
from specdec_core.messages import REPLICA_METRICS


def full_status() -> pb.PoolStatusResponse:
    return pb.PoolStatusResponse(
        started_unix_s=1_000_000.5,
        num_waiting=3,
        num_running=5,
        counters={
            "num_prompt_tokens": 700,
            "num_committed": 400,
            "num_groups": 40,
            "num_sequence_rounds": 100,
            "num_proposed_rounds": 90,
            "num_drafted": 250,
            "num_accepted": 150,
            "num_finished_stop": 7,
            "num_rejected_queue_full": 2,
            "num_failed_deadline": 1,
            "num_audited_exact": 6,
            "num_diverged_exact": 1,
            "num_leases_granted_target": 40,
            "num_leases_granted_draft": 30,
            "num_leases_expired_draft": 2,
            "num_rounds_k_by_goodput": 60,
            "num_rounds_k_by_no_draft": 40,
            "num_client_prompt_tokens_someone": 600,
            "num_client_cached_tokens_someone": 80,
            "num_client_prompt_tokens_": 100,
        },
        accepted_per_position=[80, 50, 20],
        drafted_per_position=[90, 90, 70],
        group_sizes=[0, 10, 10, 20],
        max_group_wait_s=0.25,
        replicas=[
            pb.ReplicaStatus(
                replica_id="t0",
                role="target",
                num_blocks=100,
                num_free_blocks=75,
                num_prefix_queries=50,
                num_prefix_hits=10,
                num_rows=90,
                busy_s=1.5,
                num_slots=4,
                num_sequences=5,
                metrics={name: 2.5 for name in REPLICA_METRICS},
            ),
            pb.ReplicaStatus(replica_id="d0", role="draft", num_blocks=10, is_fenced=True),
        ],
        audit=pb.AuditStatus(num_skipped=3, num_pending=2),
        clients=[
            pb.ClientStatus(name="someone", num_requests=9, num_running=1, num_tokens=400),
            pb.ClientStatus(name="", num_requests=1),
        ],
        stages=[
            pb.StageStatus(role="target", stage="verify", count=3, sum_s=0.5, buckets=_buckets(3)),
            pb.StageStatus(role="draft", stage="draft", count=2, sum_s=0.1, buckets=_buckets(2)),
            pb.StageStatus(role="ingress", stage="respond", count=4, sum_s=0.2),
        ],
        stage_bounds_s=BOUNDS_S,
        requests=[
            pb.HistogramStatus(
                name=metric.name,
                kind="input" if metric.labels else "",
                sum=1.5,
                buckets=[1, *[0] * (len(metric.bounds) - 1), 2],
            )
            for metric in OBSERVED
        ]
        + [pb.HistogramStatus(name=metric.name, buckets=[3]) for metric in COUNTED],
        k_policy={"last_steps": 4.0},
    )


def _buckets(count: int) -> list[int]:
    return [count, *[0] * len(BOUNDS_S)]
