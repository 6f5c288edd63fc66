"""The router over cells that do as they are told: what leaves a lost cell, and who is asked."""

from __future__ import annotations

import asyncio

import pytest

from deployments.errors import PoolUnavailableError
from deployments.wire.cell_ids import new_id_of
from tests.deployments.cells.fake_cells import MOVE_AFTER_S, FakeCell, Ingress


async def test_a_request_moves_when_its_cell_was_away_for_the_bound_and_not_before() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    name = await ingress.begin(new_id_of(0, 2))
    cells[0].away()
    for ingress.now in (10.0, 14.0, 15.0):
        ingress.router.look()
        await asyncio.sleep(0.01)
        assert name in cells[0].running
    cells[0].up()  # back for a moment: the bound begins anew
    ingress.router.look()
    cells[0].away()
    for ingress.now in (16.0, 21.0):
        ingress.router.look()
        await asyncio.sleep(0.01)
        assert name in cells[0].running
    ingress.now = 21.1
    ingress.router.look()
    await asyncio.sleep(0.01)
    assert list(cells[1].running) == [name]
    assert [request.request_id for request in cells[1].resumed] == [name]
    assert not cells[0].running
    await ingress.router.abort(name)
    assert cells[1].aborted == [name]


async def test_what_its_cell_never_saw_begins_in_another_as_new() -> None:
    """It has yet to meet the limits of its key."""
    cells = [FakeCell(), FakeCell()]
    cells[0].was_sent = False
    ingress = Ingress(cells)
    name = await ingress.begin(new_id_of(0, 2))
    cells[0].away()
    ingress.router.look()
    ingress.now = MOVE_AFTER_S + 1
    ingress.router.look()
    await asyncio.sleep(0.01)
    assert list(cells[1].running) == [name]
    assert not cells[1].resumed


async def test_the_requests_of_a_lost_cell_are_spread_over_those_that_are_left() -> None:
    cells = [FakeCell() for _ in range(3)]
    ingress = Ingress(cells)
    for _ in range(40):
        await ingress.begin(new_id_of(0, 3))
    cells[0].away()
    ingress.router.look()
    ingress.now = MOVE_AFTER_S + 1
    ingress.router.look()
    await asyncio.sleep(0.05)
    assert [len(cell.running) for cell in cells] == [0, 20, 20]


async def test_nothing_moves_while_no_other_cell_may_go_on_with_it() -> None:
    """Exact tokens go on with equal bits only; their own cell may still come back."""
    cells = [FakeCell(fingerprint="a"), FakeCell(fingerprint="b"), FakeCell(fingerprint="a")]
    ingress = Ingress(cells)
    pinned = await ingress.begin(new_id_of(0, 3), pinned_fingerprint="a")
    free = await ingress.begin(new_id_of(0, 3))
    cells[0].away()
    cells[2].away()
    for ingress.now in (0.0, 6.0):
        ingress.router.look()
    await asyncio.sleep(0.01)
    assert [list(cell.running) for cell in cells] == [[pinned], [free], []]
    cells[2].up(fingerprint="a")
    ingress.router.look()
    await asyncio.sleep(0.01)
    assert [list(cell.running) for cell in cells] == [[], [free], [pinned]]


async def test_an_abort_of_an_own_request_asks_its_cell_alone() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    name = await ingress.begin(new_id_of(1, 2))
    assert await ingress.router.abort(name)
    assert [cell.aborted for cell in cells] == [[], [name]]


async def test_an_abort_of_an_id_that_is_not_known_here_asks_every_cell() -> None:
    cells = [FakeCell(), FakeCell(), FakeCell()]
    router = Ingress(cells).router
    name = new_id_of(1, 3)
    assert not await router.abort(name)
    assert [cell.aborted for cell in cells] == [[name]] * 3
    for cell in cells:
        cell.known = {name}
        assert await router.abort(name)
        cell.known = set()
    cells[0].away()
    assert not await router.abort(name)
    cells[2].known = {name}
    assert await router.abort(name)
    cells[1].away()
    assert await router.abort(name)
    cells[2].known = set()
    with pytest.raises(PoolUnavailableError):
        await router.abort(name)


async def test_the_state_is_that_of_all_cells_and_follows_each_of_them() -> None:
    cells = [FakeCell(2), FakeCell(1)]
    router = Ingress(cells).router
    state = router.state
    assert state is not None
    assert (state.num_targets, state.fingerprint, state.numerics) == (3, "bits", "exact")
    assert router.state is state
    cells[1].up(fingerprint="other")
    assert router.state is not None
    assert router.state.fingerprint == "bits | other"
    cells[0].away()
    assert router.state is not None
    assert (router.state.num_targets, router.state.fingerprint) == (1, "other")
    assert router.is_serving


async def test_the_status_leaves_out_who_does_not_answer_and_there_is_none_of_nobody() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    for _ in range(6):
        await ingress.begin()
    assert (await ingress.router.pool_status()).num_running == 6
    cells[0].away()
    status = await ingress.router.pool_status()
    assert (status.num_running, [one.cell for one in status.cells]) == (3, [1])
    cells[1].away()
    with pytest.raises(PoolUnavailableError):
        await ingress.router.pool_status()


async def test_the_router_looks_by_itself() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    running = asyncio.create_task(ingress.router.run())
    name = await ingress.begin(new_id_of(0, 2))
    cells[0].away()
    while name not in cells[1].running:
        ingress.now += 1.0
        await asyncio.sleep(0.02)
    running.cancel()
