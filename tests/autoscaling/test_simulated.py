"""The autoscaler in the capacity world: load comes in steps, replicas take time to start."""

from __future__ import annotations

from itertools import pairwise

import pytest

from deployments.config.scaling import Bounds, Thresholds
from deployments.simulation.capacity import CellRun, Job, Plant
from deployments.simulation.coordinating import CoordinatorCosts
from deployments.simulation.load import TimedJob, drawn
from deployments.simulation.step_costs import StepCosts, parse_step_ms
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from tests.autoscaling.scaled_cell import ScaledCell, Scaling

START_S = 10.0
JOB = Job(16, 16)
EVEN = 20.0
"""Burstiness: a single burst is a load that changes, and is followed."""
PLAIN = 0
"""Drafts that such a plant begins with."""


def plant(
    num_drafts: int, draft_ms: str = "40+2", k_policy: KPolicyName = KPolicyName.FIXED
) -> Plant:
    """A pass of 8 rows takes 0.4 s and more: few events in much time."""
    method = SpecMethod.DRAFT_MODEL if num_drafts else SpecMethod.NONE
    speculation = SpeculationConfig(method=method, num_draft_tokens=3, k_policy=k_policy)
    return Plant(
        num_targets=1,
        num_drafts=num_drafts,
        scheduler=SchedulerConfig(
            max_group_size=8, window=16, max_queued=500, speculation=speculation
        ),
        steps=StepCosts(verify=parse_step_ms("400+2"), draft=parse_step_ms(draft_ms)),
        acceptance=0.7,
        coordinator=CoordinatorCosts(),
    )


def scaled(plant: Plant, drafts: Bounds, **aims: float) -> ScaledCell:
    values = dict(up_delay_s=4.0, down_delay_s=25.0, zero_delay_s=30.0, retry_s=60.0) | aims
    scaling = Scaling(
        thresholds=Thresholds(window=16, max_group_size=8, **values),  # type: ignore[arg-type]
        targets=Bounds(1, 3),
        drafts=drafts,
        start_s=START_S,
    )
    return ScaledCell(plant, scaling, seed=1, num_positions=2048)


def steps(*parts: tuple[float, float]) -> list[TimedJob]:
    """Requests of (per second, seconds), one part behind the other."""
    jobs: list[TimedJob] = []
    start = 0.0
    for number, (rate, seconds) in enumerate(parts):
        if rate:
            fresh = drawn(rate, EVEN, seconds, JOB, seed=number)
            jobs += [(start + time, job) for time, job in fresh if time < seconds]
        start += seconds
    return jobs


def numbers(cell: ScaledCell, deployment: str) -> list[int]:
    """Those that the deployment was to have, one behind the other."""
    changes = [change for _, change in cell.changes if change.deployment == deployment]
    return [change.after for change in changes]


def turns(found: list[int], first: int) -> int:
    """How often growing became shrinking, or the other way round."""
    ways = [after > before for before, after in pairwise([first, *found])]
    return sum(a is not b for a, b in pairwise(ways))


def check_answers(run: CellRun, jobs: list[TimedJob]) -> None:
    """Nothing was lost on replicas that left: every answer is as long as it was to be."""
    assert run.num_refused == 0
    assert len(run.answers) == len(jobs)
    assert all(answer.num_tokens == answer.job.output_len for answer in run.answers)


LOAD_STEP = ((0.3, 60.0), (3.0, 90.0), (0.3, 130.0))


@pytest.fixture(scope="module")
def stepped() -> tuple[ScaledCell, CellRun, list[TimedJob]]:
    """A step to ten times the load and back; a target alone serves 1.2 requests a second."""
    cell = scaled(plant(PLAIN), Bounds(0, 1))
    jobs = steps(*LOAD_STEP)
    return cell, cell.run_open(jobs, 300.0), jobs


def test_targets_follow_a_load_step_up_and_back_without_swinging(
    stepped: tuple[ScaledCell, CellRun, list[TimedJob]],
) -> None:
    cell, _, _ = stepped
    found = numbers(cell, "target")
    assert max(found) == 3
    assert found[-1] == 1
    assert turns(found, first=1) == 1


def test_the_first_decision_comes_soon_after_the_step(
    stepped: tuple[ScaledCell, CellRun, list[TimedJob]],
) -> None:
    """A window of signals and the delay."""
    cell, _, _ = stepped
    first = min(at for at, change in cell.changes if change.deployment == "target")
    assert 60.0 < first < 60.0 + 20.0


def test_no_request_is_lost_on_a_target_that_leaves(
    stepped: tuple[ScaledCell, CellRun, list[TimedJob]],
) -> None:
    _, run, jobs = stepped
    check_answers(run, jobs)


def test_a_steady_load_does_not_change_the_number_for_ever() -> None:
    """What two targets can serve: two it is after a while, and stays."""
    cell = scaled(plant(PLAIN), Bounds(0, 1))
    cell.run_open(steps((1.2, 200.0)), 200.0)
    late = [change for at, change in cell.changes if at > 130.0 and change.deployment == "target"]
    assert late == []
    assert cell.numbers[0] == 2


def test_drafts_follow_the_load_to_zero_and_back() -> None:
    """Drafts as slow as a quarter of a pass: two are needed at the top."""
    cell = scaled(plant(1, draft_ms="120+4"), Bounds(0, 2))
    jobs = steps((1.5, 60.0), (0.0, 120.0), (0.5, 40.0))
    run = cell.run_open(jobs, 270.0)
    found = numbers(cell, "draft")
    assert found[:3] == [2, 1, 0]
    assert 1 in found[3:]
    check_answers(run, jobs)


def test_drafts_that_do_not_pay_leave_and_are_tried_again_after_a_rest() -> None:
    """A draft step costs what a pass costs: the K policy draws the consequence, then we do."""
    expensive = plant(1, draft_ms="400+2", k_policy=KPolicyName.GOODPUT)
    cell = scaled(expensive, Bounds(0, 2))
    run = cell.run_closed([JOB] * 8, 0.0, 160.0)
    changes = [(at, change) for at, change in cell.changes if change.deployment == "draft"]
    place = next(place for place, (_, change) in enumerate(changes) if change.after == 0)
    (gone_at, gone), (back_at, back) = changes[place : place + 2]
    assert gone.desired.signal == "drafted_share"
    assert back.after == 1
    assert back_at - gone_at >= 60.0
    assert run.num_refused == 0
