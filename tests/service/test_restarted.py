"""Serve's controller dies while a target loads its model: the target is not started anew."""

from __future__ import annotations

import os
import signal

import pytest
from ray import serve
from ray.exceptions import RayError

from benchmarks.harness.processes import Kind, pids_by_kind
from deployments.app import APPLICATION
from tests.service.conftest import Service
from tests.service.test_hung import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(400)]


def test_a_target_that_loads_while_serves_controller_dies_is_not_started_anew(
    service: Service,
) -> None:
    """A controller that is back ends every replica whose constructor has not returned."""
    service.until_complete()
    killed, other = service.replica_pids("target")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: bool(service.replica_pids("target.initialize")), limit_s=90)
    (loading,) = service.replica_pids("target.initialize")
    (controller,) = pids_by_kind(os.getpid())[Kind.CONTROLLER]
    os.kill(controller, signal.SIGKILL)
    wait_until(_runs_both_targets, limit_s=120)
    assert set(service.replica_pids("target")) == {other, loading}
    service.until_complete()


def _runs_both_targets() -> bool:
    """As Serve's controller says; nobody says it while there is none."""
    try:
        targets = serve.status().applications[APPLICATION].deployments["target"]
    except (RayError, KeyError):
        return False
    return targets.replica_states == {"RUNNING": 2}
