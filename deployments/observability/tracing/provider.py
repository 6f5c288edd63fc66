"""Provider of a process's spans, which sends the remaining spans when the process ends.

The provider is used by our code alone. The global provider belongs to Serve, which traces its
proxies and its routing if it is configured to.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from deployments.observability.exporters import Signal, check_exporters, exporter_kinds
from deployments.observability.process import SERVICE, ProcessName, close_in_time, resource_of
from deployments.version import package_version


def span_processors() -> list[SpanProcessor]:
    """Return one span processor for every exporter that the OTEL_* variables name."""
    return [BatchSpanProcessor(kind()) for kind in exporter_kinds(Signal.TRACES)]


class Tracing:
    """Tracer of one process. Without a provider nothing is traced."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.tracer: Tracer | None = (
            None if provider is None else provider.get_tracer(SERVICE, package_version())
        )
        self._provider = provider

    async def close(self) -> None:
        """Send the remaining spans, within `process.CLOSE_S` seconds."""
        if self._provider is not None:
            await close_in_time(self._provider.shutdown)


def begin_tracing(process: ProcessName) -> Tracing:
    """Begin the tracing that the OTEL_* variables ask for.

    Raises InvalidRequestError for an exporter that is not available. This includes exporters of
    metrics. Only the coordinator uses those, and the user would not see why it cannot start.
    """
    check_exporters()
    processors = span_processors()
    if not processors:
        return Tracing()
    provider = TracerProvider(resource=resource_of(process))
    for processor in processors:
        provider.add_span_processor(processor)
    return Tracing(provider)
