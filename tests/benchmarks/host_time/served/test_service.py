"""A real service with modelled devices is measured, and its rounds have all their parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.host_time.cells import Cell, DeviceKind, Method, times_of
from benchmarks.host_time.served.command import ModelledService, modelled_service
from benchmarks.host_time.served.parts import Part

pytestmark = pytest.mark.slow

_CELLS = {method: Cell(DeviceKind.H100, 2, method) for method in Method}
_PASS_S = times_of(DeviceKind.H100).target(2, 1)


@pytest.fixture(scope="module")
def running() -> Iterator[ModelledService]:
    with modelled_service(list(_CELLS.values())) as service:
        yield service


def test_a_plain_round_is_a_modelled_pass_and_what_the_host_adds(running: ModelledService) -> None:
    found = running.measure(_CELLS[Method.PLAIN], 1.0, 1.0)
    assert found.parts_s[Part.DEVICE] == pytest.approx(_PASS_S, rel=0.02)
    assert found.adds_up
    assert found.drafted == 0
    assert {"target", "coordinator", "ingress", "proxy"} <= found.use.keys()


def test_scripted_lookups_are_right_as_often_as_is_said(running: ModelledService) -> None:
    found = running.measure(_CELLS[Method.NGRAM_07], 1.0, 1.0)
    assert found.drafted > 0
    # With K = 8 tokens after a wrong one are rejected, with K = 1 none is.
    assert 0.2 < found.accepted / found.drafted < 0.8
    assert found.adds_up


def test_a_draft_has_parts_of_its_own(running: ModelledService) -> None:
    found = running.measure(_CELLS[Method.DRAFT], 1.0, 1.0)
    assert found.accepted > 0
    assert found.parts_s[Part.DRAFT_DEVICE] > 0.0


def test_beside_a_slower_host_results_are_those_of_the_whole_device(
    running: ModelledService,
) -> None:
    found = running.measure(_CELLS[Method.PLAIN], 1.0, 2.0)
    assert found.parts_s[Part.DEVICE] == pytest.approx(_PASS_S, rel=0.02)


def test_a_request_costs_the_ingress_something(running: ModelledService) -> None:
    assert running.use_of_requests(16, 1.0)["ingress"].cpu_s > 0.0
