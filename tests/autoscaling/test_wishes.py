"""How many replicas the signals ask for, by hand-made arithmetic."""

from __future__ import annotations

import pytest

from deployments.autoscaling.desired import (
    NOT_PAYING,
    Cooldown,
    desired_drafts,
    desired_ingresses,
    desired_targets,
)
from deployments.config.scaling import Bounds, Thresholds
from tests.autoscaling.signals import KV_TOKENS, signals

AIMS = Thresholds(window=32, max_group_size=8, target_load=0.5, kv=0.8, draft_busy=0.5)


@pytest.mark.parametrize(
    ("changed", "signal", "replicas"),
    [
        ({"target_load": 1.5, "num_running": 9.0}, "target_load", 3.0),
        ({"num_running": 32.0, "num_waiting": 48.0}, "live_sequences", 2.5),
        ({"kv_tokens": 6_000.0, "waiting_tokens": 10_000.0}, "kv_tokens", 2.0),
    ],
)
def test_the_signal_that_asks_for_most_targets_decides(
    changed: dict[str, float], signal: str, replicas: float
) -> None:
    desired = desired_targets(signals(**changed), AIMS)
    assert (desired.signal, desired.replicas) == (signal, pytest.approx(replicas))


def test_before_a_target_has_said_how_large_its_cache_is_the_cache_asks_for_nothing() -> None:
    assert (
        desired_targets(signals(waiting_tokens=KV_TOKENS, kv_tokens_per_target=0), AIMS).replicas
        == 0
    )


WANTED = {"num_running": 8.0, "num_wanting": 8.0, "num_rounds": 100.0, "drafted_share": 1.0}


@pytest.mark.parametrize(
    ("changed", "replicas"),
    [
        ({"draft_busy": 0.25}, 0.5),
        ({"draft_busy": 0.75}, 1.5),
        # Busy all the time, and a quarter of those who want a proposal wait for the next pass.
        ({"draft_busy": 1.0, "num_starved": 2.0, "num_wanting": 12.0, "num_running": 12.0}, 2.333),
        ({"draft_kv": 1.2}, 1.5),
    ],
)
def test_drafts_are_asked_for_by_what_they_do_and_what_waits_for_them(
    changed: dict[str, float], replicas: float
) -> None:
    desired = desired_drafts(signals(**{**WANTED, **changed}), AIMS, None)
    assert desired.replicas == pytest.approx(replicas, abs=0.001)


@pytest.mark.parametrize(("num_wanting", "most"), [(1.0, 1), (4.0, 1), (5.0, 2), (8.0, 2)])
def test_there_is_work_for_one_draft_at_least_and_for_one_a_half_group_at_most(
    num_wanting: float, most: int
) -> None:
    desired = desired_drafts(signals(**{**WANTED, "num_wanting": num_wanting}), AIMS, None)
    assert desired.limits == Bounds(1, most)


def test_where_there_is_no_work_for_more_that_is_what_is_told() -> None:
    desired = desired_drafts(
        signals(**{**WANTED, "draft_busy": 2.0, "num_wanting": 2.0}), AIMS, None
    )
    assert (desired.signal, desired.value, desired.threshold) == ("num_wanting", 2.0, 4.0)


def test_without_a_draft_one_is_asked_for_as_soon_as_a_sequence_wants_it() -> None:
    changed = {"num_drafts": 0.0, "num_starved": 8.0, "drafted_share": 0.0}
    assert desired_drafts(signals(**{**WANTED, **changed}), AIMS, None).replicas == 1.0


@pytest.mark.parametrize("changed", [{}, {"num_running": 5.0, "target_load": 1.0}])
def test_where_nobody_wants_a_draft_none_is_asked_for(changed: dict[str, float]) -> None:
    assert desired_drafts(signals(draft_busy=0.9, **changed), AIMS, None).replicas == 0.0


def test_where_few_rounds_are_drafted_drafting_does_not_pay() -> None:
    desired = desired_drafts(signals(**{**WANTED, "drafted_share": 0.01}), AIMS, None)
    assert (desired.signal, desired.replicas) == (NOT_PAYING, 0.0)


def test_a_second_without_a_round_does_not_say_that_drafting_does_not_pay() -> None:
    quiet = {**WANTED, "num_rounds": 0.0, "drafted_share": 0.0}
    assert desired_drafts(signals(**quiet), AIMS, None).limits.least == 1


def test_while_drafting_rests_no_draft_is_asked_for() -> None:
    changed = {"num_drafts": 0.0, "num_starved": 8.0}
    cooldown = Cooldown(until=100.0, rows_per_target=8.0)
    assert desired_drafts(signals(**{**WANTED, **changed}), AIMS, cooldown).replicas == 0.0


@pytest.mark.parametrize(
    ("now", "num_running", "is_over"),
    [(99.0, 8.0, False), (100.0, 8.0, True), (1.0, 4.0, False), (1.0, 3.0, True)],
)
def test_a_rest_is_over_with_its_time_or_when_groups_are_less_than_half(
    now: float, num_running: float, is_over: bool
) -> None:
    cooldown = Cooldown(until=100.0, rows_per_target=8.0)
    assert cooldown.is_over(signals(num_running=num_running), now) is is_over


def test_ingresses_are_asked_for_by_requests() -> None:
    assert desired_ingresses(500.0, AIMS).replicas == 2.5
