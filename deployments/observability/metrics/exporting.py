"""Export a coordinator's metrics periodically: to Ray's port, OTLP's collectors and the log."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from ray.util import metrics

from deployments.observability.exporters import Signal, exporter_kinds
from deployments.observability.metrics.export_otlp import OtlpMetrics, interval_s
from deployments.observability.metrics.log_line import PERIOD_S as LOG_PERIOD_S
from deployments.observability.metrics.log_line import log_lines
from deployments.observability.metrics.rates import between, of_cells
from deployments.observability.metrics.registry import APPLICATION, CELL, METRICS, MODEL_NAME
from deployments.observability.process import ProcessName, close_in_time, resource_of
from specdec.v1 import generation_pb2 as pb

RAY_PERIOD_S = 5.0
"""Seconds between exports. Ray forwards gauges every 10 s, and drops those that were not set again
in 20 s."""
_AT_ONCE = 32
"""Number of samples set between two yields to the event loop. Setting one takes microseconds."""


class RayPort:
    """Series of one coordinator. All of them have `labels`."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._gauges: dict[str, metrics.Gauge] = {}
        for metric in METRICS:
            for name, own in metric.sample_labels.items():
                gauge = metrics.Gauge(name, metric.text, (*own, *self._labels))
                self._gauges[name] = gauge.set_default_tags(self._labels)

    async def export(self, status: pb.PoolStatusResponse) -> None:
        samples = (sample for metric in METRICS for sample in metric.samples(status))
        for number, (name, labels, value) in enumerate(samples, 1):
            self._gauges[name].set(float(value), labels)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)


logger = logging.getLogger(__name__)

Read = Callable[[], pb.PoolStatusResponse]


class MetricsExporting:
    """Exports the metrics of one coordinator, as long as it lives.

    Raises InvalidRequestError for an exporter that is not available, as tracing does.
    """

    def __init__(
        self, read: Read, process: ProcessName, *, model_name: str, application: str
    ) -> None:
        self._read = read
        self._cell = process.cell or 0
        self._labels = {MODEL_NAME: model_name, APPLICATION: application, CELL: str(self._cell)}
        self._collectors = [
            OtlpMetrics(
                kind(), resource=resource_of(process), model_name=model_name, labels=self._labels
            )
            for kind in exporter_kinds(Signal.METRICS)
        ]
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Export forever. Each exporter has its own interval because a collector may be slow."""
        self._running = asyncio.current_task()
        every_s = interval_s(os.environ)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_every(RAY_PERIOD_S, self._read, RayPort(self._labels).export))
            tasks.create_task(_every(LOG_PERIOD_S, self._read, _Log(self._cell).export))
            for otlp in self._collectors:
                tasks.create_task(_every(every_s, self._read, _in_a_thread(otlp.export)))

    async def close(self) -> None:
        """Stop exporting and send the last totals to collectors, within `process.CLOSE_S`
        seconds."""
        if self._running is not None:
            self._running.cancel()
        collectors, self._collectors = self._collectors, []
        if collectors:
            last = self._last()
            await asyncio.gather(*(close_in_time(partial(_end, one, last)) for one in collectors))

    def _last(self) -> pb.PoolStatusResponse | None:
        """Return the last totals, or None if the scheduler has failed and cannot be read. The
        process must end in both cases."""
        try:
            return self._read()
        except Exception:
            logger.exception("failed to read the final metrics")
            return None


def _end(otlp: OtlpMetrics, status: pb.PoolStatusResponse | None) -> None:
    try:
        if status is not None:
            otlp.export(status)
    except Exception:
        logger.exception("failed to export the final metrics")
    finally:
        otlp.close()


class _Log:
    def __init__(self, cell: int) -> None:
        self._cell = cell
        self._logged = of_cells(pb.PoolStatusResponse(), time.monotonic())

    async def export(self, status: pb.PoolStatusResponse) -> None:
        reading = of_cells(status, time.monotonic())
        for line in log_lines(between(self._logged, reading), status, self._cell):
            logger.info("%s", line)
        self._logged = reading


def _in_a_thread(
    export: Callable[[pb.PoolStatusResponse], None],
) -> Callable[[pb.PoolStatusResponse], Awaitable[None]]:
    async def call(status: pb.PoolStatusResponse) -> None:
        await asyncio.to_thread(export, status)

    return call


async def _every(
    period_s: float,
    read: Read,
    export: Callable[[pb.PoolStatusResponse], Awaitable[None]],
) -> None:
    """Export now, and then every `period_s` seconds. A failed export never affects requests."""
    while True:
        try:
            await export(read())
        except Exception:
            logger.exception("failed to export metrics")
        await asyncio.sleep(period_s)
