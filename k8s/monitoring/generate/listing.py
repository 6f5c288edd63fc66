"""docs/metrics.md: every metric, from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.observability.metrics.metric import Kind, Metric
from deployments.observability.metrics.registry import METRICS

_HEAD = """\
# Metrics

Written from the registry (`deployments/observability/metrics/families/`) by `make dashboards`.

The same totals are available in four places. All count from the start of their coordinator.

- `GET /metrics` of any ingress has the names below. Every series has the label `model_name`, and
  `cell` if there are several cells. With `--metrics-compat vllm`, metrics marked vLLM are also
  listed under `vllm:`. On a server with API keys, series with the label `client` need a key
  ([who sees them](operations.md#figures-of-api-keys)).
- Ray's metrics port, on the node of the coordinator, has the names with the prefix `ray_`. The
  labels `model_name`, `application` and `cell` are added to Ray's own. The coordinator reports
  every 5 s, and Ray exports every 10 s. The type after `# TYPE` is always gauge there, because
  Ray's counters cannot start at zero and its histograms estimate their sums from the buckets.
  Names, values and PromQL are as usual.
- OTLP needs the extra `otlp` (`pip install '.[otlp]'` in the folder of the source code). The
  standard variables in the environment of every node configure it:
  `OTEL_METRICS_EXPORTER` (otlp, console or none; default: otlp if there is an endpoint),
  `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_PROTOCOL`,
  `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
  `OTEL_SDK_DISABLED`. Values are always cumulative, and a coordinator that ends exports its last
  totals. A chat counts as `text_completion`, because the coordinator sees token IDs only. The
  resource is named as in [traces](telemetry.md). If an exporter is selected but not installed, the
  server does not start.
- The coordinator's log has two lines every 10 s, if there was work: `Avg prompt throughput: ...`
  and `SpecDecoding metrics: Mean acceptance length: ...`, in the words of vLLM.

A counter's name ends with `_total`. A histogram has `_bucket`, `_count` and `_sum`; a summary has
`_count` and `_sum`. A series without an event is 0. Series with the label of a replica, a client, a
position, a stage or a figure appear with their first event. Ray Serve counts HTTP and gRPC calls,
answered or refused, in its own metrics (`ray_serve_*`).

| Name | Kind | Labels | OTLP | vLLM | |
|---|---|---|---|---|---|
"""
_BUCKETS = "\n## Buckets\n\nUpper bounds. One more bucket has no upper bound.\n\n"


def listing() -> str:
    rows = "".join(f"{_row(metric)}\n" for metric in METRICS)
    return _HEAD + rows + _BUCKETS + "".join(f"- {line}\n" for line in _bucket_lines())


def _row(metric: Metric) -> str:
    name = metric.name + ("_total" if metric.kind is Kind.COUNTER else "")
    unit = f" {metric.unit}" if metric.unit else ""
    cells = (
        f"`{name}`",
        metric.kind.value,
        ", ".join(f"`{label}`" for label in metric.labels),
        f"`{metric.otlp_name}`{unit}",
        "yes" if metric.is_vllm else "",
        metric.text,
    )
    return f"| {' | '.join(cells)} |"


def _bucket_lines() -> Iterator[str]:
    names: dict[tuple[float, ...], list[str]] = {}
    for metric in METRICS:
        if metric.bounds:
            names.setdefault(metric.bounds, []).append(f"`{metric.name}`")
    for bounds, alike in names.items():
        yield f"{', '.join(alike)}: {', '.join(f'{bound:g}' for bound in bounds)}"
