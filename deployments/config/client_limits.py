"""Limits of each client, an API key's name, and a cell's share of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deployments.wire.cell_ids import share_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits that hold for every client alike, over all cells. None: no limit.

    Callers without a key count as one client with an empty name, and have no limits.
    """

    max_concurrent: int | None = None
    requests_per_minute: int | None = None
    cell: int = 0
    num_cells: int = 1

    def share_of(self, client: str) -> ClientLimits:
        """Return the part of the limits that this cell grants `client`."""
        most, rate = (
            None if limit is None else share_of(limit, client, self.cell, self.num_cells)
            for limit in (self.max_concurrent, self.requests_per_minute)
        )
        return replace(self, max_concurrent=most, requests_per_minute=rate)
