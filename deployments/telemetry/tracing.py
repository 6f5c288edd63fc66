"""A process's spans: the provider that makes them, and what is left to send when it ends.

The provider is ours alone: the global one belongs to Serve, which traces its proxies and its
routing where it is asked to.
"""

from __future__ import annotations

import asyncio
import os
import threading

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from deployments.telemetry import names
from deployments.telemetry.exporters import exporter_kinds, exporter_names
from deployments.telemetry.process import ProcessName
from deployments.version import package_version

_SERVICE = "specdec"
_CLOSE_S = 3.0
"""A collector that is away must not hold up the end of a process."""


class Tracing:
    """Of one process; without a provider nothing is traced."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.tracer: Tracer | None = (
            None if provider is None else provider.get_tracer(_SERVICE, package_version())
        )
        self._provider = provider

    async def close(self) -> None:
        """Send what is left, as far as there is time."""
        if self._provider is not None:
            ending = threading.Thread(target=self._provider.shutdown, daemon=True)
            ending.start()
            await asyncio.to_thread(ending.join, _CLOSE_S)


def is_asked_for() -> bool:
    """Whether the environment names an exporter."""
    return bool(exporter_names(os.environ))


def begin_tracing(process: ProcessName) -> Tracing:
    """As OTEL_* say. Raises InvalidRequestError for an exporter that is not there."""
    exporters = [kind() for kind in exporter_kinds()]
    if not exporters:
        return Tracing()
    provider = TracerProvider(resource=_resource(process))
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)


def _resource(process: ProcessName) -> Resource:
    """All processes are of one service, each an instance of it."""
    own: dict[str, str | int] = {
        names.SERVICE_VERSION: package_version(),
        names.SERVICE_INSTANCE: process.id,
        names.PROCESS: process.role,
    }
    if process.cell is not None:
        own[names.CELL] = process.cell
    named = Resource.create(own)  # whatever OTEL_* say of other names
    is_nameless = str(named.attributes[names.SERVICE_NAME]).startswith("unknown_service")
    return named.merge(Resource({names.SERVICE_NAME: _SERVICE})) if is_nameless else named
