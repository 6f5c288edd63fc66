"""Lets Serve trace its own part, into the same place as ours.

    RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=\
        deployments.observability.tracing.serve_spans:span_processors

Set this variable in the environment of every node. Serve calls the function in each of its
processes. Serve samples by RAY_SERVE_TRACING_SAMPLING_RATIO, and we trace what it sampled.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from deployments.observability.exporters import Signal, exporter_kinds


def span_processors() -> list[SpanProcessor]:
    """Return one span processor for every exporter that the OTEL_* variables name."""
    return [BatchSpanProcessor(kind()) for kind in exporter_kinds(Signal.TRACES)]
