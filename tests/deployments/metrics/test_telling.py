"""What cannot be told is told later, and never ends the telling of anything else; what is left is
told at the end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import export as otel

from deployments.names import Part
from deployments.observability import process as closing
from deployments.observability.exporters import Signal
from deployments.observability.metrics import exporting as telling
from deployments.observability.metrics.exporting import MetricsExporting
from deployments.observability.process import ProcessName
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError
from tests.deployments.metrics.status import full_status
from tests.deployments.metrics.test_otlp import Collector, told

PROCESS = ProcessName(role=Part.COORDINATOR, id="c", cell=2)


def of_full_status() -> MetricsExporting:
    return MetricsExporting(full_status, PROCESS, model_name="m", application="a")


class Port:
    """Fails at first."""

    told: list[pb.PoolStatusResponse]

    def __init__(self, labels: Mapping[str, str]) -> None:
        assert labels == {"model_name": "m", "application": "a", "cell": "2"}
        self._has_failed = False

    async def export(self, status: pb.PoolStatusResponse) -> None:
        if not self._has_failed:
            self._has_failed = True
            raise OSError("it is away")
        self.told.append(status)


@pytest.fixture(autouse=True)
def _ports(monkeypatch: pytest.MonkeyPatch) -> None:
    Port.told = []
    monkeypatch.setattr(telling, "RayPort", Port)


def test_a_failure_and_a_senseless_variable_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telling, "RAY_PERIOD_S", 0.001)
    monkeypatch.setattr(telling, "LOG_PERIOD_S", 0.001)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")

    async def scenario() -> None:
        task = asyncio.create_task(of_full_status().run())
        while len(Port.told) < 2 or "Cell 2: Avg prompt throughput" not in caplog.text:
            await asyncio.sleep(0.001)
        task.cancel()

    with caplog.at_level(logging.INFO, "deployments"):
        asyncio.run(asyncio.wait_for(scenario(), 20))
    assert "it is away" in caplog.text
    assert "OTEL_METRIC_EXPORT_INTERVAL=soon" in caplog.text


def test_an_exporter_that_is_not_there_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "carrier_pigeon")
    with pytest.raises(InvalidRequestError, match="carrier_pigeon"):
        of_full_status()


def exported_to(exporter: otel.MetricExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds(signal: Signal) -> list[Callable[[], otel.MetricExporter]]:
        assert signal is Signal.METRICS
        return [lambda: exporter]

    monkeypatch.setattr(telling, "exporter_kinds", kinds)


async def test_the_last_totals_are_told_at_the_end_and_nothing_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour between two tellings: without it what came since the first would be lost."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    collector = Collector()
    exported_to(collector, monkeypatch)
    status = full_status()
    metrics = MetricsExporting(lambda: status, PROCESS, model_name="m", application="a")
    running = asyncio.create_task(metrics.run())
    while not collector.heard:
        await asyncio.sleep(0.001)
    status.counters["num_committed"] += 5
    await metrics.close()
    await asyncio.wait([running])
    await metrics.close()  # a second word of the end changes nothing
    assert len(collector.heard) == 2
    del collector.heard[0]
    tokens: Any = told(collector)["specdec.generation_tokens"].data
    assert [point.value for point in tokens.data_points] == [405]
    assert collector.is_shut_down


class Hanging(Collector):
    """Takes connections and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def export(self, *_: Any, **__: Any) -> otel.MetricExportResult:
        self.released.wait()
        return otel.MetricExportResult.FAILURE


def test_a_collector_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "CLOSE_S", 0.05)
    hanging = Hanging()
    exported_to(hanging, monkeypatch)
    began_s = time.monotonic()
    asyncio.run(of_full_status().close())
    took_s = time.monotonic() - began_s
    hanging.released.set()
    assert took_s < 20  # the exporter itself would never end


def test_a_pool_that_cannot_be_counted_any_more_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector = Collector()
    exported_to(collector, monkeypatch)

    def read() -> pb.PoolStatusResponse:
        raise AssertionError("the pool failed")

    asyncio.run(MetricsExporting(read, PROCESS, model_name="m", application="a").close())
    assert not collector.heard
    assert collector.is_shut_down
