"""docs/metrics.md: every metric, from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.observability.metrics.metric import Kind, Metric
from deployments.observability.metrics.registry import METRICS

_HEAD = """\
# Metrics

Written from the registry (`deployments/observability/metrics/families/`) by `make dashboards`.

The same totals are told in four places; all count from the start of their coordinator.

- `GET /metrics` of any ingress: the names below. Every series has `model_name`, and `cell` where
  there are several cells. With `--metrics-compat vllm` those marked vLLM stand there under `vllm:`
  too. On a server with API keys, series with a label `client` need a key
  ([who sees them](operations.md#figures-of-api-keys)).
- Ray's metrics port of the node that has the coordinator: `ray_` before the name, and labels
  `model_name`, `application` and `cell` besides Ray's own. Told every 5 s, passed on by Ray every
  10 s. There the word behind `# TYPE` is always gauge: Ray's counters cannot begin at zero, and its
  histograms tell sums as guessed from the buckets. Names, values and PromQL are as usual.
- OTLP (the extra `otlp`: `pip install '.[otlp]'` in the folder of the source code), by the
  standard variables in the environment of every node:
  `OTEL_METRICS_EXPORTER` (otlp, console or none; unset it is otlp where there is an endpoint),
  `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_PROTOCOL`,
  `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
  `OTEL_SDK_DISABLED`. Always cumulative, with the last totals when a coordinator ends. A chat
  counts as `text_completion`: the pool sees ids. Who tells them is named as in
  [traces](telemetry.md). An exporter that is asked for and not installed is refused at the start.
- The coordinator's log, every 10 s in which there was work: `Avg prompt throughput: ...` and
  `SpecDecoding metrics: Mean acceptance length: ...`, worded as vLLM does.

A counter's name ends with `_total`; a histogram has `_bucket`, `_count` and `_sum`, a summary the
last two. Series without an event yet are there as 0, but for those labelled with a replica, a
client, a position, a stage or a figure, which come with the first. HTTP and gRPC calls, answered or
refused, are counted by Ray Serve itself (`ray_serve_*`).

| Name | Kind | Labels | OTLP | vLLM | |
|---|---|---|---|---|---|
"""
_BUCKETS = "\n## Buckets\n\nUpper ends; one more bucket takes the rest.\n\n"


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
