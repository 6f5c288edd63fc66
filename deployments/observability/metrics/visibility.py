"""Selection of the figures of API keys that a caller may see."""

from __future__ import annotations

from collections.abc import Collection

from deployments.wire.counter_names import CLIENT_CACHED, CLIENT_PROMPT
from specdec.v1 import generation_pb2 as pb


def visible(status: pb.PoolStatusResponse, names: Collection[str] | None) -> pb.PoolStatusResponse:
    """Return `status` with the figures of these API keys alone. None means all keys."""
    if names is None:
        return status
    kept = pb.PoolStatusResponse()
    kept.CopyFrom(status)
    for one in (kept, *kept.cells):
        _keep(one, names)
    return kept


def _keep(status: pb.PoolStatusResponse, names: Collection[str]) -> None:
    clients = [one for one in status.clients if one.name in names]
    del status.clients[:]
    status.clients.extend(clients)
    for counter in list(status.counters):
        for prefix in (CLIENT_PROMPT, CLIENT_CACHED):
            if counter.startswith(prefix) and counter.removeprefix(prefix) not in names:
                del status.counters[counter]
