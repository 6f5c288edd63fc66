"""Readers of values in PoolStatus, shared by metrics whose values are found in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from deployments.names import NO_KEY, Part
from deployments.observability.metrics.metric import Distribution, Point, Read
from specdec.v1 import generation_pb2 as pb


def total(name: str) -> Read:
    """Return a reader of one named counter."""
    return lambda status: [Point(status.counters.get(name, 0))]


def totals_by(prefix: str, values: Iterable[str]) -> Read:
    """Return a reader of counters that differ in the end of their name. It gives a point for each
    of `values`, counted or not."""
    ends = tuple(values)
    return lambda status: [Point(status.counters.get(f"{prefix}{end}", 0), (end,)) for end in ends]


def value(find: Callable[[pb.PoolStatusResponse], float]) -> Read:
    return lambda status: [Point(find(status))]


def kv_usage(status: pb.PoolStatusResponse) -> float:
    """Share of the targets' KV blocks in use."""
    targets = [one for one in status.replicas if one.role == Part.TARGET]
    num_blocks = sum(one.num_blocks for one in targets)
    num_free = sum(one.num_free_blocks for one in targets)
    return (num_blocks - num_free) / num_blocks if num_blocks else 0.0


def by_replica(find: Callable[[pb.ReplicaStatus], float]) -> Read:
    """Return a reader with a series per replica, which ends with the replica."""
    return lambda status: [Point(find(one), (one.role, one.replica_id)) for one in status.replicas]


def by_client(find: Callable[[pb.ClientStatus], float]) -> Read:
    return lambda status: [Point(find(one), (one.name or NO_KEY,)) for one in status.clients]


def total_by_client(prefix: str) -> Read:
    """Return a reader of counters whose names end with a client's name."""
    return lambda status: [
        Point(status.counters.get(prefix + one.name, 0), (one.name or NO_KEY,))
        for one in status.clients
    ]


def observed(name: str, bounds: tuple[float, ...], kinds: tuple[str, ...] = ()) -> Read:
    """Return a reader of the observations that ingresses sent for ended requests. Without any
    observation, it gives an empty distribution."""

    def read(status: pb.PoolStatusResponse) -> Iterator[Point]:
        by_kind = {one.kind: one for one in status.requests if one.name == name}
        for kind in kinds or ("",):
            one = by_kind.get(kind, pb.HistogramStatus())
            buckets = tuple(one.buckets) or (0,) * (len(bounds) + 1)
            yield Point(Distribution(bounds, buckets, one.sum), (kind,) if kinds else ())

    return read


def observed_count(name: str) -> Read:
    """Return a reader of the number of observations, for a metric without buckets or a sum."""

    def read(status: pb.PoolStatusResponse) -> list[Point]:
        return [Point(sum(sum(one.buckets) for one in status.requests if one.name == name))]

    return read
