"""Metrics of a cell: its coordinator, its replicas, its audit, and the usage of its clients."""

from __future__ import annotations

from collections.abc import Callable

from deployments.observability.metrics.families.reading import (
    by_client,
    by_replica,
    total_by_client,
    totals_by,
    value,
)
from deployments.observability.metrics.metric import Kind, Metric, Point, Read
from deployments.wire.counter_names import AUDITED, CLIENT_CACHED, CLIENT_PROMPT, DIVERGED
from specdec.v1 import generation_pb2 as pb
from specdec_core.config import Numerics
from specdec_core.messages import REPLICA_METRICS, Role

_NUMERICS = (Numerics.EXACT, Numerics.FAST)


def _num_replicas(status: pb.PoolStatusResponse) -> list[Point]:
    roles = [one.role for one in status.replicas]
    return [Point(roles.count(role), (role.value,)) for role in Role]


def _of_replicas(
    name: str, kind: Kind, find: Callable[[pb.ReplicaStatus], float], text: str, unit: str = ""
) -> Metric:
    return Metric(
        name=f"specdec_replica_{name}",
        kind=kind,
        text=text,
        read=by_replica(find),
        labels=("role", "replica_id"),
        unit=unit,
    )


def _value_of(name: str) -> Callable[[pb.ReplicaStatus], float]:
    return lambda one: one.metrics.get(name, 0.0)


def _of_clients(name: str, kind: Kind, read: Read, text: str, unit: str = "") -> Metric:
    return Metric(
        name=f"specdec_client_{name}",
        kind=kind,
        text=text,
        read=read,
        labels=("client",),
        unit=unit,
    )


_CLIENTS = (
    _of_clients(
        "requests",
        Kind.COUNTER,
        by_client(lambda one: one.num_requests),
        "Requests that have started, by API key.",
    ),
    _of_clients(
        "requests_running",
        Kind.GAUGE,
        by_client(lambda one: one.num_running),
        "Requests that have not ended, by API key.",
    ),
    _of_clients(
        "prompt_tokens",
        Kind.COUNTER,
        total_by_client(CLIENT_PROMPT),
        "Prompt tokens of requests that have started, by API key. Each choice counts its prompt.",
        "{token}",
    ),
    _of_clients(
        "cached_prompt_tokens",
        Kind.COUNTER,
        total_by_client(CLIENT_CACHED),
        "Prompt tokens of ended requests that were found in the prefix cache, by API key.",
        "{token}",
    ),
    _of_clients(
        "generation_tokens",
        Kind.COUNTER,
        by_client(lambda one: one.num_tokens),
        "Emitted tokens, by API key.",
    ),
    _of_clients(
        "wasted_draft_tokens",
        Kind.COUNTER,
        by_client(lambda one: one.num_wasted_draft_tokens),
        "Drafted tokens that were not accepted, by API key.",
    ),
)

_COORDINATOR = (
    Metric(
        name="specdec_coordinator_start_time_seconds",
        kind=Kind.GAUGE,
        text="Start time of the coordinator, in seconds since 1970. Totals count from this time.",
        read=value(lambda status: status.started_unix_s),
        unit="s",
    ),
    Metric(
        name="specdec_replicas",
        kind=Kind.GAUGE,
        text="Registered replicas by role.",
        read=_num_replicas,
        labels=("role",),
    ),
)
_REPLICAS = (
    _of_replicas(
        "busy_seconds",
        Kind.COUNTER,
        lambda one: one.busy_s,
        "Time that the replica has spent on groups.",
        "s",
    ),
    _of_replicas("rows", Kind.COUNTER, lambda one: one.num_rows, "Rows that the replica has run."),
    _of_replicas(
        "sequences",
        Kind.GAUGE,
        lambda one: one.num_sequences,
        "Sequences placed on the replica.",
    ),
    _of_replicas(
        "resident_sequences",
        Kind.GAUGE,
        lambda one: one.num_slots,
        "Sequences with KV on the replica, as it last reported.",
    ),
    _of_replicas("kv_blocks", Kind.GAUGE, lambda one: one.num_blocks, "KV blocks of the replica."),
    _of_replicas(
        "kv_blocks_free",
        Kind.GAUGE,
        lambda one: one.num_free_blocks,
        "Free KV blocks of the replica, as it last reported.",
    ),
    _of_replicas(
        "is_fenced",
        Kind.GAUGE,
        lambda one: int(one.is_fenced),
        "1 if the replica did not answer a lease in time, else 0.",
    ),
    _of_replicas(
        "is_draining",
        Kind.GAUGE,
        lambda one: int(one.is_draining),
        "1 if the replica is draining, else 0.",
    ),
    *(
        _of_replicas(metric.name, Kind(metric.kind), _value_of(name), metric.text, metric.unit)
        for name, metric in REPLICA_METRICS.items()
    ),
)
_AUDIT = (
    Metric(
        name="specdec_audited_requests",
        kind=Kind.COUNTER,
        text="Finished requests that were replayed without speculation and compared.",
        read=totals_by(AUDITED, _NUMERICS),
        labels=("numerics",),
    ),
    Metric(
        name="specdec_diverged_requests",
        kind=Kind.COUNTER,
        text="Audited requests whose replay gave another token. With exact numerics this is a "
        "fault.",
        read=totals_by(DIVERGED, _NUMERICS),
        labels=("numerics",),
    ),
    Metric(
        name="specdec_audits_skipped",
        kind=Kind.COUNTER,
        text="Sampled requests that were not replayed to the end.",
        read=value(lambda status: status.audit.num_skipped),
    ),
    Metric(
        name="specdec_audits_pending",
        kind=Kind.GAUGE,
        text="Sampled requests whose replay is waiting or running.",
        read=value(lambda status: status.audit.num_pending),
    ),
)
METRICS = (*_COORDINATOR, *_REPLICAS, *_AUDIT, *_CLIENTS)
