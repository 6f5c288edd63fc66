"""What the coordinator's process tells besides the stages of its leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.host_time.served.leases import LeaseWatch, Span, without
from benchmarks.host_time.served.shared_numbers import COORDINATOR, SharedNumbers, shared_numbers
from deployments.observability.metrics.round_stages import LeaseStages
from specdec_core.messages import Role


class Waited:
    """The loop's waiting for a core so far, as the test sets it."""

    def __init__(self) -> None:
        self.seconds = 10.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def told(tmp_path: Path) -> SharedNumbers:
    return shared_numbers(tmp_path, COORDINATOR)


def _lease(length_s: float) -> LeaseStages:
    return LeaseStages(None, length_s / 4, length_s / 4, length_s / 2)


def test_waiting_counts_from_an_answer_to_the_first_lease_after_it(told: SharedNumbers) -> None:
    waited = Waited()
    watch = LeaseWatch(told, waited)
    watch.heard()
    waited.seconds += 0.25
    watch.sent()
    waited.seconds += 0.5
    watch.sent()
    assert told["waited_s"] == pytest.approx(0.25)


def test_a_lease_that_follows_no_answer_waits_for_nobody(told: SharedNumbers) -> None:
    waited = Waited()
    watch = LeaseWatch(told, waited)
    waited.seconds += 0.25
    watch.sent()
    assert told["waited_s"] == 0.0


def test_leases_one_after_another_share_no_time(told: SharedNumbers) -> None:
    watch = LeaseWatch(told, Waited())
    for came_s in (1.0, 2.0, 3.0):
        watch.answered(Role.TARGET, came_s, _lease(1.0))
    assert told["shared_s"] == pytest.approx(0.0)


def test_leases_side_by_side_share_the_time_of_both(told: SharedNumbers) -> None:
    watch = LeaseWatch(told, Waited())
    watch.answered(Role.TARGET, 5.0, _lease(2.0))
    watch.answered(Role.TARGET, 6.0, _lease(2.5))
    assert told["shared_s"] == pytest.approx(1.5)
    watch.answered(Role.TARGET, 6.0, _lease(0.5))
    assert told["shared_s"] == pytest.approx(2.0)


def test_a_lease_within_a_longer_one_is_shared_whole(told: SharedNumbers) -> None:
    watch = LeaseWatch(told, Waited())
    watch.answered(Role.TARGET, 4.0, _lease(3.0))
    watch.answered(Role.TARGET, 7.0, _lease(7.0))
    assert told["shared_s"] == pytest.approx(3.0)


def test_leases_of_target_and_draft_are_told_apart(told: SharedNumbers) -> None:
    watch = LeaseWatch(told, Waited())
    watch.answered(Role.DRAFT, 1.0, LeaseStages(0.125, 0.25, 0.0625, 0.5))
    watch.answered(Role.TARGET, 2.0, LeaseStages(0.125, 0.125, 0.0625, 0.25))
    found = {name: value for name, value in told.all().items() if value}
    assert found == {
        "rounds": 1,
        "drafts": 1,
        "schedule_s": 0.25,
        "wire_s": 0.125,
        "held_s": 0.3125,
        "draft_s": 0.8125,
    }


def test_only_scheduling_that_follows_an_answer_counts(told: SharedNumbers) -> None:
    watch = LeaseWatch(told, Waited())
    watch.answered(Role.TARGET, 1.0, LeaseStages(0.25, 0.1, 0.1, 0.5))
    watch.answered(Role.TARGET, 2.0, LeaseStages(None, 0.1, 0.1, 0.5))
    assert told["schedule_s"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("other", "left"),
    [
        (Span(0.0, 1.0), [Span(2.0, 6.0)]),
        (Span(0.0, 3.0), [Span(3.0, 6.0)]),
        (Span(3.0, 4.0), [Span(2.0, 3.0), Span(4.0, 6.0)]),
        (Span(5.0, 9.0), [Span(2.0, 5.0)]),
        (Span(6.0, 9.0), [Span(2.0, 6.0)]),
        (Span(1.0, 9.0), []),
    ],
)
def test_a_span_without_another_is_what_is_left(other: Span, left: list[Span]) -> None:
    assert without(Span(2.0, 6.0), other) == left
