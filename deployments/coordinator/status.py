"""The answer to PoolStatus: what the pool counts, with each replica's own count of its memory."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.coordinator.audit import Auditor
from deployments.coordinator.driver import SchedulerDriver
from deployments.names import Part
from deployments.observability.metrics.histogram import BOUNDS_S
from deployments.observability.metrics.request_times import IngressTimes
from deployments.observability.metrics.round_stages import StageHistograms
from deployments.wire.counter_names import EXPIRED, FINISHED, GRANTED, K_CAUSE
from specdec.v1 import generation_pb2 as pb
from specdec_core.scheduler import ReplicaCounters, SchedulerCounters


def stage_statuses(stages: StageHistograms, ingress: IngressTimes) -> Iterator[pb.StageStatus]:
    for (role, stage), found in stages.items():
        yield pb.StageStatus(
            role=role,
            stage=stage,
            count=sum(found.buckets),
            sum_s=found.sum_s,
            buckets=found.buckets,
        )
    for name, timer in (("detokenise", ingress.detokenise), ("respond", ingress.respond)):
        yield pb.StageStatus(
            role=Part.INGRESS, stage=name, count=ingress.num_pieces, sum_s=timer.seconds
        )


_TOTALS = (
    "num_groups",
    "num_equal_length_groups",
    "num_split_groups",
    "num_sequence_rounds",
    "num_proposed_rounds",
    "num_drafted",
    "num_accepted",
    "num_committed",
    "num_preemptions",
    "num_kv_misses",
    "num_stale_results",
    "num_fenced",
)

_FIGURES = {"acceptance_ngram": "acceptance_lookup", "acceptance_draft_model": "acceptance_model"}
"""Figure of the K policy -> its label in the metric specdec_k_policy, where they differ."""


def pool_status(driver: SchedulerDriver) -> pb.PoolStatusResponse:
    counters = driver.scheduler.counters()
    return pb.PoolStatusResponse(
        epoch=driver.epoch,
        replicas=[_replica(driver, replica) for replica in counters.replicas],
        num_waiting=counters.num_waiting,
        num_running=counters.num_running,
        counters=_totals(counters) | driver.requests.counters(),
        max_group_wait_s=counters.max_wait_s,
        accepted_per_position=counters.accepted_per_position,
        drafted_per_position=counters.drafted_per_position,
        group_sizes=counters.group_sizes,
        audit=_audit(driver.auditor),
        clients=[
            pb.ClientStatus(
                name=name,
                num_requests=usage.num_requests,
                num_running=usage.num_running,
                num_tokens=usage.num_tokens,
                num_draft_tokens=usage.num_drafted,
                num_wasted_draft_tokens=usage.num_wasted,
            )
            for name, usage in driver.quotas.usage.items()
        ],
        stages=stage_statuses(driver.stages, driver.ingress_times),
        stage_bounds_s=BOUNDS_S,
        requests=driver.ingress_times.requests(),
        k_policy={_FIGURES.get(name, name): n for name, n in counters.k_policy.items()},
        started_unix_s=driver.started_unix_s,
    )


def _audit(auditor: Auditor) -> pb.AuditStatus:
    return pb.AuditStatus(
        num_audited=auditor.counts.audited.total(),
        num_diverged=auditor.counts.diverged.total(),
        num_skipped=auditor.counts.num_skipped,
        num_pending=auditor.num_pending,
    )


def _totals(counters: SchedulerCounters) -> dict[str, int]:
    finished = {f"{FINISHED}{reason}": n for reason, n in counters.num_finished.items()}
    leases = {f"{GRANTED}{role}": n for role, n in counters.leases.granted.items()}
    leases |= {f"{EXPIRED}{role}": n for role, n in counters.leases.expired.items()}
    causes = {f"{K_CAUSE}{one.label}": n for one, n in counters.num_rounds_by_k_cause.items()}
    return {name: int(getattr(counters, name)) for name in _TOTALS} | finished | leases | causes


def _replica(driver: SchedulerDriver, counters: ReplicaCounters) -> pb.ReplicaStatus:
    connected = driver.replicas[counters.replica_id]
    info, occupancy = connected.info, connected.occupancy
    return pb.ReplicaStatus(
        replica_id=counters.replica_id,
        role=counters.role.value,
        num_groups=counters.num_leases,
        num_rows=counters.num_rows,
        num_sequences=counters.num_sequences,
        num_slots=occupancy.num_slots,
        num_free_blocks=occupancy.num_free_blocks,
        num_prefix_queries=occupancy.num_prefix_queries,
        num_prefix_hits=occupancy.num_prefix_hits,
        num_blocks=info.num_blocks,
        block_size=info.kv_cache_spec.block_size,
        busy_s=counters.busy_s,
        model_digest=info.model_digest,
        fingerprint=info.fingerprint,
        is_fenced=counters.is_fenced,
        is_draining=counters.is_draining,
        numerics=info.numerics,
        metrics=occupancy.metrics,
    )
