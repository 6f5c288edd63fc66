"""The router over cells that do as they are told: which of them gets a request."""

from __future__ import annotations

from random import Random

import pytest

from deployments.wire.cell_ids import order_of
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cells.fake_cells import FakeCell, Ingress


@pytest.mark.parametrize("num_targets", [(1, 1), (1, 3), (2, 2, 2)])
async def test_a_thousand_requests_are_spread_by_targets_while_others_end(
    num_targets: tuple[int, ...],
) -> None:
    cells = [FakeCell(count) for count in num_targets]
    ingress, random = Ingress(cells), Random(3)
    for _ in range(1000):
        await ingress.begin()
        if len(ingress.tasks) > 60:
            await ingress.leave(random.choice(list(ingress.tasks)))
    for cell, count in zip(cells, num_targets, strict=True):
        share = 1000 * count / sum(num_targets)
        assert 0.8 * share < cell.num_begun < 1.2 * share


async def test_ids_made_before_any_of_their_requests_begins_are_spread_too() -> None:
    """A burst is prepared in one turn of the loop."""
    ingress = Ingress([FakeCell(), FakeCell()])
    homes = [order_of(ingress.router.new_request_id(), 2)[0] for _ in range(100)]
    assert homes.count(0) == 50


async def test_what_was_prepared_and_refused_is_soon_no_load() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    cells[1].away()
    for _ in range(10):
        ingress.router.new_request_id()
    cells[1].up()
    assert {order_of(ingress.router.new_request_id(), 2)[0] for _ in range(5)} == {1}
    ingress.router.look()
    homes = [order_of(ingress.router.new_request_id(), 2)[0] for _ in range(10)]
    assert homes.count(0) == 5


async def test_what_others_have_running_counts() -> None:
    cells = [FakeCell(), FakeCell()]
    cells[0].num_others = 30
    ingress = Ingress(cells)
    for _ in range(30):
        await ingress.begin()
    assert [cell.num_begun for cell in cells] == [0, 30]
    for _ in range(30):
        await ingress.begin()
    assert [cell.num_begun for cell in cells] == [15, 45]


async def test_a_cell_without_a_target_gets_no_request_while_another_serves() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    for lose in (cells[0].away, lambda: cells[0].up(num_targets=0)):
        lose()
        for number in range(20):
            await ingress.begin()
            await ingress.begin(f"named {number}")
        assert cells[0].num_begun == 0
        for name in list(ingress.tasks):
            await ingress.leave(name)
    cells[0].up()
    for _ in range(20):
        await ingress.begin()
    assert cells[0].num_begun == 10


async def test_while_nobody_serves_a_request_waits_at_its_home() -> None:
    cells = [FakeCell(), FakeCell()]
    for cell in cells:
        cell.away()
    ingress = Ingress(cells)
    assert ingress.router.state is None
    assert not ingress.router.is_serving
    name = await ingress.begin()
    home = order_of(name, 2)[0]
    assert [cell.num_begun for cell in cells] == [int(home == 0), int(home == 1)]
    cells[home].up()
    cells[home].finish(name)
    assert [event.token_ids for event in await ingress.tasks[name]] == [(1,)]


async def test_two_ingresses_put_a_named_request_into_the_same_cell() -> None:
    cells = [[FakeCell() for _ in range(3)] for _ in range(2)]
    for place, own in enumerate(cells):
        own[place].num_others = 1000
        ingress = Ingress(own, seed=place)
        for number in range(30):
            await ingress.begin(f"mine {number}")
    one, other = ([list(cell.running) for cell in own] for own in cells)
    assert one == other
    assert all(one)


async def test_an_id_is_in_use_until_its_request_has_ended_whatever_its_cell() -> None:
    cells = [FakeCell(), FakeCell()]
    ingress = Ingress(cells)
    name = await ingress.begin("mine")
    home = order_of(name, 2)[0]
    again = Request(request_id=name, prompt_token_ids=(1,), params=SamplingParams(max_tokens=1))
    cells[home].away()  # its stand-in would not know
    with pytest.raises(InvalidRequestError, match="'mine' is in use"):
        await anext(ingress.router.generate(again))
    cells[home].finish(name)
    await ingress.tasks[name]
    await ingress.begin(name)
    assert name in cells[1 - home].running
