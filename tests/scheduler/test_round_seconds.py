"""What the K policy is told that a round took: the host's part too, but no time of waiting."""

from __future__ import annotations

from benchmarks.k_trace import Record, TracedK
from specdec_core.config import KPolicyName, SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.speculation.policies import FixedPolicy
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.modelled.world import Costs, World

PASS_S, STEP_S, HOST_S = 0.010, 0.002, 0.003


def rounds(method: SpecMethod) -> list[Record]:
    """Of two sequences; all but the first, which no result was before."""
    records: list[Record] = []
    costs = Costs(lambda *_: PASS_S, lambda *_: STEP_S, lambda *_: HOST_S)
    speculation = SpeculationConfig(method=method, num_draft_tokens=2, k_policy=KPolicyName.FIXED)
    policy = TracedK(FixedPolicy(2), records.append)
    World(SchedulerConfig(speculation=speculation), costs, 0.5, policy).run(2, 12)
    return [record for record in records if record["event"] == "observe"][1:]


def test_the_time_between_result_and_next_lease_belongs_to_the_next_round() -> None:
    for record in rounds(SpecMethod.NGRAM):
        assert abs(record["seconds"] - PASS_S - HOST_S) < 1e-9


def test_draft_and_target_have_each_its_own_part() -> None:
    drafted = [
        record
        for record in rounds(SpecMethod.DRAFT_MODEL)
        if record["role"] == "draft" and record["rows"][0][2] == 2
    ]
    assert drafted
    for record in drafted:
        assert abs(record["seconds"] - 2 * STEP_S - HOST_S) < 1e-9


def test_time_in_which_nothing_was_ready_belongs_to_no_round() -> None:
    records: list[Record] = []
    cell = Cell(config(), TracedK(FixedPolicy(0), records.append))
    cell.join(info())
    for name, starts_at in (("a", 1.0), ("b", 50.0)):
        cell.now = starts_at
        cell.add(request(name, max_tokens=1))
        cell.advance()
        cell.now += 2.0
        cell.turn()
        cell.advance()
    assert [record["seconds"] for record in records] == [2.0, 2.0]


def test_a_lease_behind_a_running_one_begins_when_that_one_is_answered() -> None:
    records: list[Record] = []
    cell = Cell(
        config(max_group_size=1, max_open_leases=2), TracedK(FixedPolicy(0), records.append)
    )
    cell.join(info())
    cell.now = 1.0
    for name in ("a", "b"):
        cell.add(request(name, max_tokens=1))
    cell.advance()
    for _ in range(2):
        cell.now += 2.0
        cell.handle("target")
        cell.deliver("target")
    assert [record["seconds"] for record in records] == [2.0, 2.0]


def test_a_round_takes_no_less_than_its_pass() -> None:
    """A driver's clock may be coarser than a replica's."""
    records: list[Record] = []
    cell = Cell(config(), TracedK(FixedPolicy(0), records.append))
    cell.join(info())
    cell.add(request())
    cell.run()
    assert {record["seconds"] for record in records} == {0.001}
