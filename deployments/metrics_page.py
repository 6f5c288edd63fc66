"""`GET /metrics`: the pool's totals as Prometheus reads them, the same through any ingress.

Names and meanings are vLLM's where it has them, under `specdec_`; `--metrics-compat vllm` repeats
those under `vllm:`, so that boards and load generators made for it work unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deployments.stages.page import stage_metrics
from specdec.v1 import generation_pb2 as pb

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TARGET = "target"

_COUNTERS = {
    "spec_decode_num_drafts": ("num_proposed_rounds", "Proposals that were checked."),
    "spec_decode_num_draft_tokens": ("num_drafted", "Tokens that were drafted."),
    "spec_decode_num_accepted_tokens": ("num_accepted", "Drafted tokens that were accepted."),
    "generation_tokens": ("num_committed", "Tokens that were emitted."),
    "num_preemptions": ("num_preemptions", "Sequences that gave their memory back."),
}
"""vLLM's names of our totals."""
_OWN_COUNTERS = {
    "groups": ("num_groups", "Target passes."),
    "equal_length_groups": ("num_equal_length_groups", "Those whose rows had one length."),
    "split_groups": ("num_split_groups", "Those of one half while the other was drafted."),
    "sequence_rounds": ("num_sequence_rounds", "Rounds, counted once per sequence."),
    "kv_misses": ("num_kv_misses", "Rows whose replica lacked what was assumed."),
    "stale_results": ("num_stale_results", "Answers that came too late to count."),
    "fenced_replicas": ("num_fenced", "How often a replica did not answer in time."),
}
_REASONS = "num_finished_"


class MetricsCompat(StrEnum):
    """Whose names are told besides our own."""

    NONE = "none"
    VLLM = "vllm"


def metrics_page(status: pb.PoolStatusResponse, model_name: str, compat: MetricsCompat) -> bytes:
    """The page, in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Cells(status, model_name, compat))
    return generate_latest(registry)


class _Cells(Collector):
    """A service of one cell, or the samples of every cell with its number: a counter of their sum
    would fall when one of them is away."""

    def __init__(
        self, status: pb.PoolStatusResponse, model_name: str, compat: MetricsCompat
    ) -> None:
        self._whole = _Collector(status, model_name, compat)
        self._cells = {one.cell: _Collector(one, model_name, compat) for one in status.cells}

    def collect(self) -> Iterator[Metric]:
        if not self._cells:
            yield from self._whole.collect()
            return
        families: dict[str, Metric] = {}
        for cell, collector in self._cells.items():
            for own in collector.collect():
                family = Metric(own.name, own.documentation, own.type)
                family = families.setdefault(own.name, family)
                labelled = (s._replace(labels={**s.labels, "cell": str(cell)}) for s in own.samples)
                family.samples.extend(labelled)
        yield from families.values()


class _Collector:
    """One cell's."""

    def __init__(
        self, status: pb.PoolStatusResponse, model_name: str, compat: MetricsCompat
    ) -> None:
        self._status = status
        self._model_name = model_name
        self._compat = compat

    def collect(self) -> Iterator[Metric]:
        yield from self._shared("specdec_")
        if self._compat is MetricsCompat.VLLM:
            yield from self._shared("vllm:")
        yield from self._own()

    def _shared(self, prefix: str) -> Iterator[Metric]:
        """What vLLM has a name for, labelled as there."""
        status, model = self._status, [self._model_name]
        for name, (total, text) in _COUNTERS.items():
            counter = CounterMetricFamily(prefix + name, text, labels=["model_name"])
            counter.add_metric(model, status.counters[total])
            yield counter
        by_position = CounterMetricFamily(
            f"{prefix}spec_decode_num_accepted_tokens_per_pos",
            "Drafted tokens that were accepted, by their place in the proposal.",
            labels=["model_name", "position"],
        )
        for position, count in enumerate(status.accepted_per_position):
            by_position.add_metric([*model, str(position)], count)
        yield by_position
        yield from self._prefix_cache(prefix)
        finished = CounterMetricFamily(
            f"{prefix}request_success",
            "Finished requests, by reason.",
            labels=["model_name", "finished_reason"],
        )
        for name, count in sorted(status.counters.items()):
            if name.startswith(_REASONS):
                finished.add_metric([*model, name.removeprefix(_REASONS)], count)
        yield finished
        for name, value, text in (
            ("num_requests_running", status.num_running, "Requests that are decoded."),
            ("num_requests_waiting", status.num_waiting, "Requests that wait for admission."),
            ("kv_cache_usage_perc", _kv_usage(status), "Share of the targets' KV blocks in use."),
        ):
            gauge = GaugeMetricFamily(prefix + name, text, labels=["model_name"])
            gauge.add_metric(model, value)
            yield gauge

    def _prefix_cache(self, prefix: str) -> Iterator[Metric]:
        """A series per target, which ends with it: their sum would fall when one leaves."""
        for name, field, text in (
            ("prefix_cache_queries", "num_prefix_queries", "Prompt tokens that were looked up."),
            ("prefix_cache_hits", "num_prefix_hits", "Those that were found."),
        ):
            labels = ["model_name", "engine"]
            counter = CounterMetricFamily(prefix + name, text, labels=labels)
            for replica in self._status.replicas:
                if replica.role == _TARGET:
                    count = getattr(replica, field)
                    counter.add_metric([self._model_name, replica.replica_id], count)
            yield counter

    def _own(self) -> Iterator[Metric]:
        status = self._status
        for name, (total, text) in _OWN_COUNTERS.items():
            yield CounterMetricFamily(f"specdec_{name}", text, value=status.counters[total])
        audit = status.audit
        for name, count, text in (
            ("audited_requests", audit.num_audited, "Requests that were replayed plainly."),
            ("diverged_requests", audit.num_diverged, "Those whose replay gave another token."),
        ):
            yield CounterMetricFamily(f"specdec_{name}", text, value=count)
        yield from self._by_client()
        labels = ["role", "replica_id"]
        busy = CounterMetricFamily(
            "specdec_replica_busy_seconds", "Time spent on groups.", labels=labels
        )
        rows = CounterMetricFamily("specdec_replica_rows", "Rows that were run.", labels=labels)
        sequences = GaugeMetricFamily(
            "specdec_replica_sequences", "Sequences placed on the replica.", labels=labels
        )
        for replica in status.replicas:
            key = [replica.role, replica.replica_id]
            busy.add_metric(key, replica.busy_s)
            rows.add_metric(key, replica.num_rows)
            sequences.add_metric(key, replica.num_sequences)
        yield from (busy, rows, sequences)
        yield from stage_metrics(status)

    def _by_client(self) -> Iterator[Metric]:
        clients = self._status.clients
        for name, field, text in (
            ("client_requests", "num_requests", "Requests that began, by API key."),
            ("client_generation_tokens", "num_tokens", "Emitted tokens, by API key."),
            (
                "client_wasted_draft_tokens",
                "num_wasted_draft_tokens",
                "Drafted tokens that came to nothing, by API key.",
            ),
        ):
            counter = CounterMetricFamily(f"specdec_{name}", text, labels=["client"])
            for client in clients:
                counter.add_metric([client.name], getattr(client, field))
            yield counter


def _kv_usage(status: pb.PoolStatusResponse) -> float:
    targets = [replica for replica in status.replicas if replica.role == _TARGET]
    num_blocks = sum(replica.num_blocks for replica in targets)
    num_free = sum(replica.num_free_blocks for replica in targets)
    return (num_blocks - num_free) / num_blocks if num_blocks else 0.0
