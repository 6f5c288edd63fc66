"""What cannot be told is told later, and never ends the telling of anything else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from deployments.metrics import telling
from specdec.v1 import generation_pb2 as pb
from tests.deployments.metrics.status import full_status


class Port:
    """Fails at first."""

    told: list[pb.PoolStatusResponse]

    def __init__(self, labels: Mapping[str, str]) -> None:
        assert labels == {"model_name": "m", "application": "a", "cell": "2"}
        self._has_failed = False

    async def tell(self, status: pb.PoolStatusResponse) -> None:
        if not self._has_failed:
            self._has_failed = True
            raise OSError("it is away")
        self.told.append(status)


@pytest.mark.parametrize("interval", ["1000", "soon"])
def test_a_failure_and_a_senseless_variable_stop_nothing(
    interval: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Port.told = []
    monkeypatch.setattr(telling, "RayPort", Port)
    monkeypatch.setattr(telling, "RAY_PERIOD_S", 0.001)
    monkeypatch.setattr(telling, "LOG_PERIOD_S", 0.001)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "carrier_pigeon")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)

    async def scenario() -> None:
        task = asyncio.create_task(
            telling.tell_metrics(full_status, model_name="m", application="a", cell=2)
        )
        while len(Port.told) < 2 or "Cell 2: Avg prompt throughput" not in caplog.text:
            await asyncio.sleep(0.001)
        task.cancel()

    with caplog.at_level(logging.INFO, "deployments"):
        asyncio.run(asyncio.wait_for(scenario(), 20))
    assert "it is away" in caplog.text
    assert ("no metrics over OTLP" in caplog.text) is (interval == "soon")
