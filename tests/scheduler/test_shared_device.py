"""Draft and target on one accelerator take turns: what a pass took, and how much is sent ahead.

The oracle of the seconds are the costs of the world, that of the rest the rule itself.
"""

from __future__ import annotations

from statistics import mean

import pytest

from benchmarks.k_trace import Record, TracedK
from specdec_core.config import (
    KPolicyName,
    OverlapMode,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.messages import GroupLease, Role
from specdec_core.scheduler import SendLease
from specdec_core.scheduler.replicas import Device, OpenLease, ReplicaSet
from specdec_core.speculation.policies import FixedPolicy
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.modelled.world import Costs, World

PASS_S, STEP_S = 0.010, 0.003
_LEASE = OpenLease(
    GroupLease(lease_id=0, epoch=0, replica_id="", role=Role.TARGET, rows=(), ttl_s=1.0),
    deadline=1.0,
    since=0.0,
    is_split=False,
    num_catching_up=0,
)


def observed(num_live: int) -> list[Record]:
    """What the K policy is told of groups of two sequences that draft two tokens."""
    records: list[Record] = []
    speculation = SpeculationConfig(
        method=SpecMethod.DRAFT_MODEL, num_draft_tokens=2, k_policy=KPolicyName.FIXED
    )
    limits = SchedulerConfig(max_group_size=2, window=6, max_open_leases=2, speculation=speculation)
    costs = Costs(lambda *_: PASS_S, lambda _: STEP_S, has_one_thread=True)
    World(limits, costs, 0.5, TracedK(FixedPolicy(2), records.append)).run(num_live, 12)
    return [record for record in records if record["event"] == "observe"]


@pytest.mark.parametrize("num_live", [2, 4, 6])
def test_a_pass_is_not_charged_for_the_turn_of_the_other_model(num_live: int) -> None:
    records = observed(num_live)
    assert {record["role"] for record in records} == {"target", "draft"}
    for record in records:
        num_steps = max(1, *(num_choices for _, _, num_choices in record["rows"]))
        own_s = PASS_S if record["role"] == "target" else num_steps * STEP_S
        assert record["seconds"] == pytest.approx(own_s)


def test_a_replicas_clock_that_goes_on_in_anothers_turn_is_not_believed() -> None:
    """A pass in a time slice of a GPU takes as long as both."""
    records: list[Record] = []
    limits = config(max_group_size=1, max_open_leases=2)
    cell = Cell(limits, TracedK(FixedPolicy(0), records.append))
    for name in ("one", "other"):
        cell.join(info(name, device="gpu"))
        cell.add(request(name, max_tokens=1))
    cell.advance()
    for name in ("one", "other"):
        cell.now += 2.0
        cell.handle(name)
        slow = cell.links[name].results.pop()
        cell.links[name].results.append(slow._replace(seconds=cell.now))
        cell.deliver(name)
    assert [record["seconds"] for record in records] == [2.0, 2.0]


def test_behind_the_pass_of_a_device_one_more_is_sent_whichever_replica_has_it() -> None:
    replicas = ReplicaSet(config())
    for name in ("here", "there"):
        replicas.add(info(name + " target", device=name))
        replicas.add(info(name + " draft", Role.DRAFT, device=name))
    target, draft, other = (
        replicas.by_id[name] for name in ("here target", "here draft", "there target")
    )
    target.leases[0] = _LEASE
    assert target.may_be_sent_more(2)
    draft.leases[1] = _LEASE
    assert not target.may_be_sent_more(2)
    assert not draft.may_be_sent_more(2)
    assert other.may_be_sent_more(2)


_TTL_S = 30.0


def four_on_a_device() -> Cell:
    """Targets, each with a lease."""
    cell = Cell(config(max_group_size=1, lease_ttl_s=_TTL_S))
    for name in "abcd":
        cell.join(info(name, device="gpu"))
        cell.add(request(name, max_tokens=3))
    cell.advance()
    return cell


@pytest.mark.parametrize(
    "answered_at", [(8, 16, 24, 32), (32, 32, 32, 32)], ids=["in turn", "in time slices"]
)
def test_who_waits_for_its_turn_on_a_device_is_not_fenced(answered_at: tuple[int, ...]) -> None:
    cell = four_on_a_device()
    for name, cell.now in zip("abcd", answered_at, strict=True):
        cell.advance()
        cell.handle(name)
        cell.deliver(name)
    counters = cell.pool.counters()
    assert (counters.num_fenced, counters.num_stale_results) == (0, 0)


def test_who_does_not_answer_though_the_others_do_is_fenced_after_all_their_turns() -> None:
    cell = four_on_a_device()
    for cell.now in range(8, 128, 8):
        for name in "abc":
            while cell.links[name].inbox:
                cell.handle(name)
            while cell.links[name].results:
                cell.deliver(name)
        cell.advance()
        assert cell.pool.counters().num_fenced == (cell.now >= 4 * _TTL_S)


def test_who_has_nothing_of_a_full_device_is_sent_one() -> None:
    """It would starve: whichever replica comes first takes every place that is left."""
    replicas = ReplicaSet(config())
    for name in ("one", "other"):
        replicas.add(info(name, device="gpu"))
    replicas.add(info("draft", Role.DRAFT, device="gpu"))
    replicas.by_id["one"].leases |= {0: _LEASE, 1: _LEASE}
    assert not replicas.by_id["one"].may_be_sent_more(2)
    assert replicas.by_id["other"].may_be_sent_more(2)
    assert replicas.by_id["draft"].may_be_sent_more(2)


@pytest.mark.parametrize("method", [SpecMethod.NONE, SpecMethod.DRAFT_MODEL])
def test_of_two_targets_on_one_device_none_starves(method: SpecMethod) -> None:
    speculation = SpeculationConfig(method=method, num_draft_tokens=2, k_policy=KPolicyName.FIXED)
    limits = SchedulerConfig(
        max_group_size=4, window=16, max_open_leases=2, speculation=speculation
    )
    costs = Costs(lambda *_: PASS_S, lambda _: STEP_S, has_one_thread=True)
    world = World(limits, costs, 0.5, FixedPolicy(2), num_targets=2)
    world.run(32, 40, 96)
    assert world.pool.counters().max_wait_s < 40 * PASS_S


def test_a_pass_that_does_not_end_holds_up_no_group_of_another_replica() -> None:
    """The draft's lease hangs, and is fenced after 60 s; a request comes to the idle target."""
    limits = config(
        SpecMethod.DRAFT_MODEL,
        2,
        max_group_size=4,
        window=8,
        max_open_leases=2,
        lease_ttl_s=30.0,
        overlap=OverlapMode.NEVER,
    )
    cell = Cell(limits, FixedPolicy(2))
    cell.join(info(device="gpu"))
    cell.join(info("draft", Role.DRAFT, device="gpu"))
    for number in range(3):
        cell.add(request(str(number), max_tokens=40, seed=number))
    while not _is_drafting_for(cell, 3):
        cell.now += PASS_S
        cell.advance()
        for name in ("target", "draft"):
            if cell.links[name].inbox and not _is_drafting_for(cell, 3):
                cell.handle(name)
                cell.deliver(name)
    came_at = cell.now
    late = cell.add(request("late", max_tokens=4, seed=9))
    cell.advance()
    while not late.token_ids:
        if cell.links["target"].inbox:
            cell.handle("target")
            cell.deliver("target")
        else:
            deadline = cell.pool.next_deadline()
            assert deadline is not None
            cell.now = deadline
        cell.advance()
    assert cell.now - came_at < limits.max_group_wait_s + 5 * PASS_S


def _is_drafting_for(cell: Cell, num_rows: int) -> bool:
    """The draft has not begun with its last lease, to propose for so many."""
    messages = cell.links["draft"].inbox
    if not messages or not isinstance(messages[-1], SendLease):
        return False
    return sum(row.num_choices > 0 for row in messages[-1].lease.rows) == num_rows


def test_a_draft_that_does_not_answer_leaves_its_device_to_the_target() -> None:
    replicas = ReplicaSet(config())
    replicas.add(info(device="gpu"))
    replicas.add(info("draft", Role.DRAFT, device="gpu"))
    replicas.by_id["draft"].leases[0] = _LEASE
    assert not replicas.by_id["draft"].may_be_sent_more(2)
    assert replicas.by_id["target"].may_be_sent_more(2)


def test_a_small_group_lets_a_shared_device_run_three_passes_first() -> None:
    """They may join it. A pass is answered each second; it is ready since the first answer."""
    device = Device(leases={"target": {0: _LEASE}, "draft": {}})
    for second in (1.0, 2.0, 3.0):
        device.answered(_LEASE, 1.0, second)
        assert device.wait_deadline(1.0) == second + 3 * 1.0
    device.answered(_LEASE, 1.0, 4.0)
    assert device.wait_deadline(2.0) == 4.0 + 3 * 1.0
    assert device.wait_deadline(1.0) < 4.0


def test_what_a_replica_records_is_no_part_of_what_its_lease_took() -> None:
    """A shape is recorded once: who counted it would take every new one for a slow machine."""
    device = Device(leases={"target": {0: _LEASE}})
    assert device.answered(_LEASE, 1.0, 1.0, 0.75) == 0.25
    assert device.answered(_LEASE, 0.5, 1.5, 0.6) == 0.0, "clocks differ"
    assert device.answered(_LEASE, 0.5, 2.0) == 0.5


def test_nobody_waits_for_an_idle_device_or_one_of_its_own() -> None:
    idle = Device(leases={"target": {}, "draft": {}})
    own = Device(leases={"target": {0: _LEASE}})
    assert idle.wait_deadline(0.0) < 0.0
    assert own.wait_deadline(0.0) < 0.0


def test_groups_that_take_turns_stay_full_though_passes_take_longer_than_the_bound() -> None:
    """Requests of unlike lengths come and go, so that groups break up."""
    sizes: list[int] = []
    records: list[Record] = []
    speculation = SpeculationConfig(
        method=SpecMethod.DRAFT_MODEL, num_draft_tokens=2, k_policy=KPolicyName.FIXED
    )
    limits = SchedulerConfig(
        max_group_size=8,
        window=24,
        max_open_leases=2,
        max_group_wait_s=0.1 * PASS_S,
        speculation=speculation,
    )
    costs = Costs(lambda *_: PASS_S, lambda _: STEP_S, has_one_thread=True)
    rates = (0.9, 0.5, 0.1)
    World(limits, costs, rates, TracedK(FixedPolicy(2), records.append)).run(16, 40, 160)
    for record in records:
        if record["event"] == "observe" and record["role"] == "target":
            sizes.append(len(record["rows"]))
    steady = sizes[len(sizes) // 4 : -len(sizes) // 4]
    assert mean(steady) >= 7.0


def test_who_has_left_its_device_has_nothing_open_there() -> None:
    replicas = ReplicaSet(config())
    for name in ("one", "other"):
        replicas.add(info(name, device="gpu"))
    device = replicas.by_id["other"].device
    assert device.is_shared
    replicas.remove("one")
    assert not device.is_shared


def test_sequences_are_drafted_on_the_device_of_their_target() -> None:
    """Also where another has more room."""
    cell = Cell(config(SpecMethod.DRAFT_MODEL, 2))
    for name in ("x", "y"):
        cell.join(info(f"target {name}", device=name))
    for name, num_blocks in (("y", 5000), ("x", 1000)):
        cell.join(info(f"draft {name}", Role.DRAFT, device=name, num_blocks=num_blocks))
    for number in range(6):
        cell.add(request(str(number), max_tokens=12, seed=number))
    cell.run()
    devices: dict[int, set[str]] = {}
    for lease in cell.leases:
        for row in lease.rows:
            devices.setdefault(row.sequence_id, set()).add(lease.replica_id[-1])
    assert len(devices) == 6
    assert all(len(names) == 1 for names in devices.values())


def test_no_time_to_wake_has_passed_while_a_device_is_busy() -> None:
    """A row waits for others, and the draft takes the device's next place meanwhile."""
    limits = config(SpecMethod.DRAFT_MODEL, 2, max_group_size=2, max_open_leases=2, window=6)
    cell = Cell(limits)
    cell.join(info(device="gpu", num_blocks=4000))
    cell.join(info("draft", Role.DRAFT, device="gpu", num_blocks=4000))
    for number in range(5):
        cell.add(request(str(number), max_tokens=40 + number, seed=number))
    for _ in range(400):
        cell.now += 0.03
        cell.advance()
        deadline = cell.pool.next_deadline()
        assert deadline is None or deadline > cell.now
        oldest = min(cell.leases, key=lambda lease: lease.lease_id, default=None)
        if oldest is not None:
            cell.leases.remove(oldest)
            while cell.links[oldest.replica_id].inbox and not cell.links[oldest.replica_id].results:
                cell.handle(oldest.replica_id)
            cell.deliver(oldest.replica_id)
