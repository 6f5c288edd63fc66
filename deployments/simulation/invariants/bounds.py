"""How long (h) and how much (i) may wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """What (h) and (i) allow."""

    row_wait_s: float
    """Between a row's being ready and its lease, while its replica may run it."""
    num_commands: int = 8
    """That wait for one replica's stream."""
    num_unread: int = 12
    """On that stream: it is full at fewer, and takes at once what waits by then."""
