"""A field of Occupancy that says how it is shown is a metric, with nothing else to edit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.status import pool_status
from deployments.observability.metrics.registry import METRICS
from deployments.wire.lease_codec import occupancy_to_pb
from specdec.v1 import coordination_pb2
from specdec_core.config import SchedulerConfig
from specdec_core.messages import REPLICA_METRICS, Occupancy
from specdec_core.scheduler import Scheduler
from specdec_core.worker.replica import Replica, Role
from tests.deployments.fake_replica import FakeReplica
from tests.fakes import TokenListModel


@pytest.mark.parametrize("name", REPLICA_METRICS)
def test_the_value_reaches_the_metrics_page(name: str) -> None:
    occupancy = replace(Occupancy(num_slots=3), **{name: 7.5})
    message = coordination_pb2.Occupancy.FromString(occupancy_to_pb(occupancy).SerializeToString())
    assert shown(name, message) == 7.5


@pytest.mark.parametrize("name", REPLICA_METRICS)
def test_a_replica_of_another_release_may_not_know_a_metric(name: str) -> None:
    assert shown(name, coordination_pb2.Occupancy(num_slots=3)) == 0.0
    assert shown(name, coordination_pb2.Occupancy(metrics={"of_tomorrow": 1.0})) == 0.0


def shown(name: str, message: coordination_pb2.Occupancy) -> float:
    """Return the value on the metrics page after a replica has sent `message`."""
    driver = SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1)
    replica = driver.register(FakeReplica(Role.TARGET).info("t0", 1))
    driver.on_heartbeat(replica, message)
    (metric,) = (
        one for one in METRICS if one.name == f"specdec_replica_{REPLICA_METRICS[name].name}"
    )
    (sample,) = metric.samples(pool_status(driver))
    assert sample.labels == {"role": "target", "replica_id": "t0"}
    return sample.value


def test_the_replica_measures_it() -> None:
    model = TokenListModel()
    model.recording_s = 1.25
    assert Replica(model, Role.TARGET).occupancy.recording_s == 1.25
