"""Whatever fails, every request gets its plain ids: the real pool and resume logic over seeds."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from deployments.simulation import campaign
from deployments.simulation.client import Outcome
from deployments.simulation.faults import FaultKind, on_coordinators, plan, plan_faults
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.scenario import FIRST_FINGERPRINT
from deployments.simulation.trial import Trial
from specdec_core.messages import GroupLease, GroupResult, Role, RowStatus


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [50, pytest.param(500, marks=pytest.mark.nightly)])
def test_no_seed_finds_a_violation_and_everything_that_can_happen_happens(num_seeds: int) -> None:
    """Every seeded defect that any seed finds, one of the first 50 does."""
    found = campaign.run_seeds(0, num_seeds)
    assert [(v.seed, v.violation) for v in found.violations] == []
    assert found.never_hit == []
    assert found.never_foreseen == []
    assert found.num_requests >= 40 * num_seeds
    assert found.least_faults is not None
    assert found.least_faults >= 8
    assert found.least_kinds is not None
    assert found.least_kinds >= 4
    assert found.outcomes[Outcome.DONE] > found.num_requests / 2


def test_rows_that_wait_for_their_grammar_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: Counter[RowStatus] = Counter()
    execute = ModelReplica.execute

    def counted(self: ModelReplica, lease: GroupLease, seconds: float) -> GroupResult:
        result = execute(self, lease, seconds)
        statuses.update(row.status for row in result.rows)
        return result

    monkeypatch.setattr(ModelReplica, "execute", counted)
    found = campaign.run_seeds(50, 5)
    assert [(v.seed, v.violation) for v in found.violations] == []
    assert statuses[RowStatus.NOT_READY] > 50
    assert found.outcomes[Outcome.DONE] > found.num_requests / 2


def test_a_seed_replays_bit_for_bit() -> None:
    first, second = campaign.replay(2), campaign.replay(2)
    assert first.record.lines == second.record.lines
    assert len(first.record.lines) > 300


def test_a_trace_changes_nothing_and_another_seed_is_another_world() -> None:
    traced, plain, other = campaign.replay(8), campaign.run_seed(8), campaign.run_seed(9)
    assert traced.record.messages == plain.record.messages
    assert traced.record.faults == plain.record.faults
    assert plain.record.messages != other.record.messages


def test_what_cannot_happen_gives_its_place_to_kinds_that_were_seldom() -> None:
    """No replica has a slot yet that a row could fail in."""
    trial = Trial(1, plan_faults=plan_faults)
    trial._start()
    for _ in range(4):
        plan._plan(trial, FaultKind.ROW_FAILS, tries=0)
    assert not trial.record.faults[FaultKind.ROW_FAILS]
    assert len(+trial.record.faults) >= 4


def test_targets_of_an_older_version_are_replaced_by_their_own() -> None:
    """Others would be refused until the last one has gone, which a redeploy waits for."""
    trial = Trial(1, plan_faults=plan_faults)
    trial.new_version(FIRST_FINGERPRINT)
    older = trial.surroundings
    assert on_coordinators.redeploy(trial) is not None
    trial.new_fingerprint("other-bits")
    replacement = trial.add_replica(Role.TARGET, world=older)
    newest = trial.add_replica(Role.TARGET)
    assert replacement.runner.info.fingerprint == FIRST_FINGERPRINT
    assert newest.runner.info.fingerprint == "other-bits"


def test_the_world_loads_neither_torch_nor_ray() -> None:
    """It starts at once."""
    code = (
        "import sys; from deployments.simulation import campaign, capacity_options; "
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_a_fault_that_was_never_hit_fails_the_campaign() -> None:
    """Once enough seeds have run."""
    found = campaign.Campaign()
    verdict = campaign.run_seed(0)
    for _ in range(campaign.SEEDS_FOR_COVERAGE - 1):
        found.add(verdict)
    assert found.is_clean
    found.add(verdict)
    missing = [kind for kind in FaultKind if not verdict.record.faults[kind]]
    assert missing
    assert {f"fault {kind}" for kind in missing} <= set(found.never_hit)
    assert not found.is_clean
