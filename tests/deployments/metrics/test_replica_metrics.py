"""A field of Occupancy that says how it is shown is a metric, with nothing else to edit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.observability.metrics.registry import METRICS
from deployments.wire.lease_codec import occupancy_from_pb, occupancy_to_pb, replica_metrics
from specdec.v1 import coordination_pb2, generation_pb2
from specdec_core.messages import REPLICA_METRICS, Occupancy
from specdec_core.worker.replica import Replica, Role
from tests.fakes import TokenListModel


@pytest.mark.parametrize("name", REPLICA_METRICS)
def test_the_value_reaches_the_metrics_page(name: str) -> None:
    occupancy = replace(Occupancy(num_slots=3), **{name: 7.5})
    message = coordination_pb2.Occupancy.FromString(occupancy_to_pb(occupancy).SerializeToString())
    assert occupancy_from_pb(message) == occupancy
    status = generation_pb2.ReplicaStatus(
        replica_id="t0", role="target", metrics=replica_metrics(occupancy)
    )
    (metric,) = (
        one for one in METRICS if one.name == f"specdec_replica_{REPLICA_METRICS[name].name}"
    )
    (sample,) = metric.samples(generation_pb2.PoolStatusResponse(replicas=[status]))
    assert (sample.labels, sample.value) == ({"role": "target", "replica_id": "t0"}, 7.5)


def test_a_replica_of_another_release_may_not_know_a_metric() -> None:
    older = coordination_pb2.Occupancy(num_slots=3)
    newer = coordination_pb2.Occupancy(num_slots=3, metrics={"of_tomorrow": 1.0})
    assert occupancy_from_pb(older) == occupancy_from_pb(newer) == Occupancy(num_slots=3)


def test_the_replica_measures_it() -> None:
    model = TokenListModel()
    model.recording_s = 1.25
    assert Replica(model, Role.TARGET).occupancy.recording_s == 1.25
