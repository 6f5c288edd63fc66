"""A process as collectors know it: its role, ID and cell, and the end of what it exports."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource

from deployments.names import Part
from deployments.observability.tracing import names
from deployments.version import package_version

CLOSE_S = 3.0
"""Maximum time in seconds that exporters delay the end of a process."""


async def close_in_time(send: Callable[[], object]) -> None:
    """Run `send` in a daemon thread and wait for it for at most CLOSE_S."""
    ending = threading.Thread(target=send, daemon=True)
    ending.start()
    await asyncio.to_thread(ending.join, CLOSE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """Name of one process."""

    role: Part
    id: str
    """ID of the replica or of the actor."""
    cell: int | None = None
    """Number of its cell. None if the process belongs to all cells."""


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
