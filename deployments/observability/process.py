"""Role, ID and cell by which a process names itself in spans and in log lines."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.names import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """Name of one process."""

    role: Part
    id: str
    """ID of the replica or of the actor."""
    cell: int | None = None
    """Number of its cell. None if the process belongs to all cells."""
