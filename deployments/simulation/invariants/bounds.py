"""Limits on how long (h) and how much (i) may wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of invariants (h) and (i)."""

    row_wait_s: float
    """Maximum seconds from a row's being ready to its lease, while its replica may run it."""
    num_commands: int = 8
    """Maximum commands that wait for one replica's stream."""
    num_unread: int = 12
    """Maximum unread commands on that stream. The stream is full at fewer, but then takes all
    commands that wait by then."""
