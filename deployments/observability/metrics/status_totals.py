"""Totals that PoolStatus carries: those of every cell, and those of every replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deployments.observability.metrics.rates import Name, Reading, Totals
from specdec.v1 import generation_pb2 as pb

GROUP_SIZES = "group_sizes"
ACCEPTED = "accepted_per_position"
BUSY_S, ROWS = "busy_s", "num_rows"


def of_cells(status: pb.PoolStatusResponse, at_s: float) -> Reading:
    """Return a reading with cells as sources. The life of a source is its coordinator's epoch."""
    return Reading(at_s, {one.cell: Totals(_counts(one), one.epoch) for one in _cells(status)})


def of_replicas(status: pb.PoolStatusResponse, at_s: float) -> Reading:
    """Return a reading with replica IDs as sources. The coordinator counts for a replica from its
    registration on."""
    lives = {one.cell: one.epoch for one in _cells(status)}
    return Reading(
        at_s,
        {
            one.replica_id: Totals({BUSY_S: one.busy_s, ROWS: one.num_rows}, lives.get(one.cell))
            for one in status.replicas
        },
    )


def _cells(status: pb.PoolStatusResponse) -> Iterable[pb.PoolStatusResponse]:
    return status.cells or [status]


def _counts(one: pb.PoolStatusResponse) -> Mapping[Name, float]:
    counts: dict[Name, float] = {name: count for name, count in one.counters.items()}
    for name in (GROUP_SIZES, ACCEPTED):
        counts |= {(name, place): count for place, count in enumerate(getattr(one, name))}
    return counts
