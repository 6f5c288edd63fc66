"""Leases by the role of their replica: those that left the pool, and those it gave up."""

from __future__ import annotations

from specdec_core.config import SpecMethod
from specdec_core.messages import Role
from specdec_core.scheduler import SendReset
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def test_every_lease_that_leaves_is_granted_to_a_role() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL))
    cell.join(info("t"))
    cell.join(info("d", Role.DRAFT))
    for name in "abcde":
        cell.add(request(name))
    cell.run()
    sent = [lease.role for lease in cell.leases]
    assert sent.count(Role.DRAFT) > 0
    found = cell.pool.counters()
    assert found.leases.granted == {role: sent.count(role) for role in Role}
    assert found.num_groups == sent.count(Role.TARGET)
    assert found.leases.expired == dict.fromkeys(Role, 0)


def test_a_lease_that_is_not_answered_expires_with_those_behind_it() -> None:
    cell = Cell(config(max_group_size=1, max_open_leases=2, lease_ttl_s=5.0))
    cell.join(info("t"))
    for name in "ab":
        cell.add(request(name))
    cell.advance()
    assert len(cell.links["t"].inbox) == 2
    cell.now = 5.0
    assert SendReset("t", 1) in cell.advance()
    found = cell.pool.counters()
    assert (found.num_fenced, found.leases.expired) == (1, {Role.TARGET: 2, Role.DRAFT: 0})


def test_every_lease_that_has_expired_is_counted() -> None:
    cell = Cell(config(max_group_size=1, lease_ttl_s=5.0))
    for name in ("t1", "t2"):
        cell.join(info(name))
        cell.add(request(name))
    cell.advance()
    cell.now = 5.0
    cell.advance()
    found = cell.pool.counters()
    assert (found.num_fenced, found.leases.expired[Role.TARGET]) == (2, 2)


def test_a_draft_s_lease_expires_as_a_draft_s() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, lease_ttl_s=5.0))
    cell.join(info("t"))
    cell.join(info("d", Role.DRAFT))
    cell.add(request("a"))
    while not any(lease.role is Role.DRAFT for lease in cell.leases):
        cell.advance()
        while cell.links["t"].inbox:
            cell.handle("t")
            cell.deliver("t")
    cell.now += 5.0
    assert SendReset("d", 1) in cell.advance()
    assert cell.pool.counters().leases.expired[Role.DRAFT] == 1
    assert cell.pool.counters().leases.expired[Role.TARGET] == 0
