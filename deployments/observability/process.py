"""How a process of the service names itself in spans and in log lines."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.names import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """One process."""

    role: Part
    id: str
    """Of the replica, or of the actor."""
    cell: int | None = None
    """None: it belongs to all."""
