"""What a service still holds when nobody asks it for anything, and what it leaves when it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import psutil

from benchmarks.chaos.grpc_client import GrpcClient
from benchmarks.chaos.watch import Sight, Watch
from benchmarks.harness.processes import title_of
from specdec.v1 import generation_pb2 as pb

_LIMIT_S = 90.0
_END_S = 30.0


async def until_whole(watch: Watch, whole: Sight) -> bool:
    """Wait until as many processes and replicas serve as at the start."""

    def is_whole(sight: Sight) -> bool:
        replicas = sorted((sight.replicas or {}).values())
        counts = {kind: len(pids) for kind, pids in sight.pids.items()}
        wanted = {kind: len(pids) for kind, pids in whole.pids.items()}
        return counts == wanted and replicas == sorted((whole.replicas or {}).values())

    deadline = time.monotonic() + _LIMIT_S
    while not is_whole(await watch.look()):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.3)
    return True


async def held_by_pool(client: GrpcClient) -> dict[str, int]:
    """What is left once everything has ended, audits included; empty is right."""
    deadline = time.monotonic() + _LIMIT_S
    held = {"unanswered": 1}
    while held and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        status = await client.status(5)
        if status is not None:
            held = _held(status)
    return held


def _held(status: pb.PoolStatusResponse) -> dict[str, int]:
    counts = {
        "waiting": status.num_waiting,
        "running": status.num_running,
        "audits": status.audit.num_pending,
        "places": sum(replica.num_sequences for replica in status.replicas),
        "slots": sum(replica.num_slots for replica in status.replicas),
        "fenced": sum(replica.is_fenced for replica in status.replicas),
    }
    return {name: count for name, count in counts.items() if count}


def left_of(processes: Sequence[psutil.Process]) -> list[str]:
    """Those that still live, some seconds after their service has ended."""
    _, alive = psutil.wait_procs(processes, timeout=_END_S)
    return [title_of(process)[:80] for process in alive]
