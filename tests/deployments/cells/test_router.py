"""The router over cells that do as they are told: who gets what, and who is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from deployments.cells.placing import new_id_of, order_of
from deployments.cells.router import CellRouter
from deployments.errors import PoolUnavailableError, ReleasedError
from deployments.stages.ingress import IngressTimes
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.errors import InvalidRequestError
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.sampling_params import SamplingParams

MOVE_AFTER_S = 5.0


class FakeCell:
    """A PoolClient's outside; a request runs until `finish`."""

    def __init__(self, num_targets: int = 1, fingerprint: str = "bits") -> None:
        self.state: pb.PoolState | None = None
        self.num_others = 0
        self.num_divergences = 0
        self.num_begun = 0
        self.resumed: list[Request] = []
        self.aborted: list[str] = []
        self.known: set[str] = set()
        """Requests of other ingresses."""
        self.running: dict[str, tuple[Request, asyncio.Queue[TokenEvent | Exception]]] = {}
        self.up(num_targets, fingerprint)

    def up(self, num_targets: int = 1, fingerprint: str = "bits") -> None:
        self.state = pb.PoolState(
            num_targets=num_targets, fingerprint=fingerprint, numerics="exact", max_model_len=512
        )

    def away(self) -> None:
        self.state = None

    @property
    def has_targets(self) -> bool:
        return self.state is not None and self.state.num_targets > 0

    is_serving = has_targets

    @property
    def num_requests(self) -> int:
        return len(self.running) + self.num_others

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def generate(
        self, request: Request, *, resume: bool = False
    ) -> AsyncGenerator[TokenEvent]:
        self.num_begun += 1
        if resume:
            self.resumed.append(request)
        events: asyncio.Queue[TokenEvent | Exception] = asyncio.Queue()
        self.running[request.request_id] = request, events
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            del self.running[request.request_id]

    def finish(self, request_id: str) -> None:
        event = TokenEvent(request_id, 0, (1,), finish_reason=FinishReason.LENGTH)
        self.running[request_id][1].put_nowait(event)

    def open_requests(self) -> list[Request]:
        return [request for request, _ in self.running.values()]

    def release(self, request_id: str) -> None:
        request, events = self.running[request_id]
        events.put_nowait(ReleasedError(request))

    async def abort(self, request_id: str) -> bool:
        if self.state is None:
            raise PoolUnavailableError("away")
        self.aborted.append(request_id)
        return request_id in self.known or request_id in self.running

    async def pool_status(self) -> public_pb.PoolStatusResponse:
        if self.state is None:
            raise PoolUnavailableError("away")
        return public_pb.PoolStatusResponse(num_running=len(self.running))


class Ingress:
    """A router and what it has running."""

    def __init__(self, cells: list[FakeCell], seed: int = 0) -> None:
        self.now = 0.0
        self.router = CellRouter(
            cells,
            IngressTimes(),
            random=Random(seed),
            clock=lambda: self.now,
            move_after_s=MOVE_AFTER_S,
        )
        self.tasks: dict[str, asyncio.Task[list[TokenEvent]]] = {}

    async def begin(self, request_id: str | None = None, **fields: Any) -> str:
        name = request_id or self.router.new_request_id()
        params = SamplingParams(max_tokens=4)
        request = Request(request_id=name, prompt_token_ids=(1,), params=params, **fields)
        self.tasks[name] = asyncio.create_task(_collected(self.router.generate(request)))
        await asyncio.sleep(0)
        return name

    async def leave(self, request_id: str) -> None:
        task = self.tasks.pop(request_id)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _collected(events: AsyncGenerator[TokenEvent]) -> list[TokenEvent]:
    async with contextlib.aclosing(events):
        return [event async for event in events]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(scenario(), 60)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(whole())


@pytest.mark.parametrize("num_targets", [(1, 1), (1, 3), (2, 2, 2)])
def test_a_thousand_requests_are_spread_by_targets_while_others_end(
    num_targets: tuple[int, ...],
) -> None:
    async def scenario() -> None:
        cells = [FakeCell(count) for count in num_targets]
        ingress, random = Ingress(cells), Random(3)
        for _ in range(1000):
            await ingress.begin()
            if len(ingress.tasks) > 60:
                await ingress.leave(random.choice(list(ingress.tasks)))
        for cell, count in zip(cells, num_targets, strict=True):
            share = 1000 * count / sum(num_targets)
            assert 0.8 * share < cell.num_begun < 1.2 * share

    run(scenario)


def test_ids_made_before_any_of_their_requests_begins_are_spread_too() -> None:
    """A burst is prepared in one turn of the loop."""

    async def scenario() -> None:
        ingress = Ingress([FakeCell(), FakeCell()])
        homes = [order_of(ingress.router.new_request_id(), 2)[0] for _ in range(100)]
        assert homes.count(0) == 50

    run(scenario)


def test_what_was_prepared_and_refused_is_soon_no_load() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_what_others_have_running_counts() -> None:
    async def scenario() -> None:
        cells = [FakeCell(), FakeCell()]
        cells[0].num_others = 30
        ingress = Ingress(cells)
        for _ in range(30):
            await ingress.begin()
        assert [cell.num_begun for cell in cells] == [0, 30]
        for _ in range(30):
            await ingress.begin()
        assert [cell.num_begun for cell in cells] == [15, 45]

    run(scenario)


def test_a_cell_without_a_target_gets_no_request_while_another_serves() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_while_nobody_serves_a_request_waits_at_its_home() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_two_ingresses_put_a_named_request_into_the_same_cell() -> None:
    async def scenario() -> None:
        cells = [[FakeCell() for _ in range(3)] for _ in range(2)]
        for place, own in enumerate(cells):
            own[place].num_others = 1000
            ingress = Ingress(own, seed=place)
            for number in range(30):
                await ingress.begin(f"mine {number}")
        one, other = ([list(cell.running) for cell in own] for own in cells)
        assert one == other
        assert all(one)

    run(scenario)


def test_an_id_is_in_use_until_its_request_has_ended_whatever_its_cell() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_a_request_moves_when_its_cell_was_away_for_the_bound_and_not_before() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_the_requests_of_a_lost_cell_are_spread_over_those_that_are_left() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_nothing_moves_while_no_other_cell_may_go_on_with_it() -> None:
    """Exact tokens go on with equal bits only; their own cell may still come back."""

    async def scenario() -> None:
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

    run(scenario)


def test_an_abort_of_an_own_request_asks_its_cell_alone() -> None:
    async def scenario() -> None:
        cells = [FakeCell(), FakeCell()]
        ingress = Ingress(cells)
        name = await ingress.begin(new_id_of(1, 2))
        assert await ingress.router.abort(name)
        assert [cell.aborted for cell in cells] == [[], [name]]

    run(scenario)


def test_an_abort_of_an_id_that_is_not_known_here_asks_every_cell() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_the_state_is_that_of_all_cells_and_follows_each_of_them() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_the_status_leaves_out_who_does_not_answer_and_there_is_none_of_nobody() -> None:
    async def scenario() -> None:
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

    run(scenario)


def test_the_router_looks_by_itself() -> None:
    async def scenario() -> None:
        cells = [FakeCell(), FakeCell()]
        ingress = Ingress(cells)
        running = asyncio.create_task(ingress.router.run())
        name = await ingress.begin(new_id_of(0, 2))
        cells[0].away()
        while name not in cells[1].running:
            ingress.now += 1.0
            await asyncio.sleep(0.02)
        running.cancel()

    run(scenario)
