"""Looks a few times a second which processes live and what the pool says, and keeps it all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.chaos.grpc_client import GrpcClient
from benchmarks.harness.processes import Kind, Pids
from specdec.v1 import generation_pb2 as pb

_EVERY_S = 0.3
_STATUS_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen at one moment."""

    at_s: float
    pids: Pids
    replicas: dict[str, Kind] | None
    """Registered ones; None where the pool's status could not be had."""
    epochs: frozenset[int] | None
    """Of every cell's coordinator that answered."""

    def num_registered(self, kind: Kind) -> int:
        return sum(other is kind for other in (self.replicas or {}).values())


class Watch:
    """What was seen so far."""

    def __init__(self, find: Callable[[], Pids], client: GrpcClient) -> None:
        self._find = find
        self._client = client
        self.sights: list[Sight] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> Sight:
        status = await self._client.status(_STATUS_TIMEOUT_S)
        sight = Sight(
            pids=await asyncio.to_thread(self._find),
            replicas=_registered(status) if status else None,
            epochs=_epochs(status) if status else None,
            at_s=time.monotonic(),
        )
        self.sights.append(sight)
        return sight


def _registered(status: pb.PoolStatusResponse) -> dict[str, Kind]:
    return {
        replica.replica_id: Kind(replica.role)
        for replica in status.replicas
        if not replica.is_fenced
    }


def _epochs(status: pb.PoolStatusResponse) -> frozenset[int]:
    return frozenset(cell.epoch for cell in status.cells or (status,))
