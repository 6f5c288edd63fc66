"""What the coordinator counts of requests, over a whole cell."""

from __future__ import annotations

import pytest

from deployments.coordinator.status import pool_status
from deployments.errors import RequestFailedError
from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import metrics_page
from specdec_core.messages import LeaseRow, Role, RowResult, RowStatus
from tests.deployments.cell import served
from tests.deployments.coordinator.test_cell import collect, request
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.metrics.test_registry import series, value


class Broken(FakeReplica):
    """Every row fails."""

    def _run(self, row: LeaseRow) -> RowResult:
        return RowResult(sequence_id=row.sequence_id, status=RowStatus.FAILED, error="it broke")


async def test_failures_are_counted_by_kind_and_observed_as_nothing_else() -> None:
    async with served(target=Broken(Role.TARGET)) as (parts, client):
        with pytest.raises(RequestFailedError):
            await collect(client, request("r"))
        status = pool_status(parts.driver)
        found = series(metrics_page(status, "m", MetricsCompat.NONE))
        assert value(found, "specdec_failed_requests_total", kind="row_failed") == 1
        assert value(found, "specdec_failed_requests_total", kind="pool_failed") == 0
        assert value(found, "specdec_request_success_total", finished_reason="error") == 1
        assert value(found, "specdec_e2e_request_latency_seconds_count") == 0
