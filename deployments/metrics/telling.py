"""Who tells a coordinator's metrics, and when: Ray's port, OTLP's collectors, the log."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping

from deployments.metrics.log_line import PERIOD_S as LOG_PERIOD_S
from deployments.metrics.log_line import log_lines
from deployments.metrics.otlp import OtlpMetrics, exporters, interval_s
from deployments.metrics.ray_port import PERIOD_S as RAY_PERIOD_S
from deployments.metrics.ray_port import RayPort
from deployments.metrics.registry import APPLICATION, CELL, MODEL_NAME
from specdec.v1 import generation_pb2 as pb

logger = logging.getLogger(__name__)


async def tell_metrics(
    read: Callable[[], pb.PoolStatusResponse], *, model_name: str, application: str, cell: int
) -> None:
    """Tell what `read` finds; never returns. Each in its own time: a collector may be slow."""
    labels = {MODEL_NAME: model_name, APPLICATION: application, CELL: str(cell)}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_every(RAY_PERIOD_S, read, RayPort(labels).tell))
        tasks.create_task(_every(LOG_PERIOD_S, read, _Log(cell).tell))
        for otlp in _collectors(model_name, labels):
            tasks.create_task(_every(interval_s(os.environ), read, _in_a_thread(otlp.tell)))


def _collectors(model_name: str, labels: Mapping[str, str]) -> list[OtlpMetrics]:
    """None where the variables make no sense: requests are served without."""
    try:
        interval_s(os.environ)
        found = exporters(os.environ)
        return [OtlpMetrics(one, model_name=model_name, labels=labels) for one in found]
    except Exception:
        logger.exception("no metrics over OTLP")
        return []


class _Log:
    def __init__(self, cell: int) -> None:
        self._cell = cell
        self._told_at = time.monotonic()
        self._told = pb.PoolStatusResponse()

    async def tell(self, status: pb.PoolStatusResponse) -> None:
        now = time.monotonic()
        for line in log_lines(self._told, status, max(now - self._told_at, 1e-3), self._cell):
            logger.info("%s", line)
        self._told, self._told_at = status, now


def _in_a_thread(
    tell: Callable[[pb.PoolStatusResponse], None],
) -> Callable[[pb.PoolStatusResponse], Awaitable[None]]:
    async def call(status: pb.PoolStatusResponse) -> None:
        await asyncio.to_thread(tell, status)

    return call


async def _every(
    period_s: float,
    read: Callable[[], pb.PoolStatusResponse],
    tell: Callable[[pb.PoolStatusResponse], Awaitable[None]],
) -> None:
    """Now, and then every so often. Requests never suffer from what cannot be told."""
    while True:
        try:
            await tell(read())
        except Exception:
            logger.exception("metrics could not be told")
        await asyncio.sleep(period_s)
