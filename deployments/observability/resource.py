"""Identify a process to collectors of traces and of metrics."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource

from deployments.observability.process import ProcessName
from deployments.observability.tracing import names
from deployments.version import package_version

SERVICE = "specdec"
"""Default service name. OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES override it."""


def resource_of(process: ProcessName) -> Resource:
    """Return the resource of the process. All processes are instances of one service."""
    own: dict[str, str | int] = {
        names.SERVICE_VERSION: package_version(),
        names.SERVICE_INSTANCE: process.id,
        names.PROCESS: process.role.value,
    }
    if process.cell is not None:
        own[names.CELL] = process.cell
    named = Resource.create(own)  # OTEL_* set the attributes with other names
    is_nameless = str(named.attributes[names.SERVICE_NAME]).startswith("unknown_service")
    return named.merge(Resource({names.SERVICE_NAME: SERVICE})) if is_nameless else named
