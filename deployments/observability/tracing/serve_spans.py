"""Lets Serve trace its own part, into the same place as ours.

    RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=\
        deployments.observability.tracing.serve_spans:span_processors

in the environment of every node: Serve calls it in each of its processes. Its own sampling decides,
by RAY_SERVE_TRACING_SAMPLING_RATIO; what it sampled, we sample.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from deployments.observability.exporters import Signal, exporter_kinds


def span_processors() -> list[SpanProcessor]:
    """One for every exporter that OTEL_* name."""
    return [BatchSpanProcessor(kind()) for kind in exporter_kinds(Signal.TRACES)]
