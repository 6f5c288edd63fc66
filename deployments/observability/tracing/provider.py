"""A process's spans: the provider that makes them, and what is left to send when it ends.

The provider is ours alone: the global one belongs to Serve, which traces its proxies and its
routing where it is asked to.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from deployments.observability import closing
from deployments.observability.exporters import Signal, check_exporters, exporter_kinds
from deployments.observability.process import ProcessName
from deployments.observability.resource import SERVICE, resource_of
from deployments.version import package_version


class Tracing:
    """Of one process; without a provider nothing is traced."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.tracer: Tracer | None = (
            None if provider is None else provider.get_tracer(SERVICE, package_version())
        )
        self._provider = provider

    async def close(self) -> None:
        """Send what is left, as far as there is time."""
        if self._provider is not None:
            await closing.close(self._provider.shutdown)


def begin_tracing(process: ProcessName) -> Tracing:
    """As OTEL_* say. Raises InvalidRequestError for an exporter that is not there, of metrics too:
    the coordinator alone has those, and where it cannot start nobody is told why."""
    check_exporters()
    exporters = [kind() for kind in exporter_kinds(Signal.TRACES)]
    if not exporters:
        return Tracing()
    provider = TracerProvider(resource=resource_of(process))
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)
