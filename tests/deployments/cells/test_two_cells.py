"""Two cells and two ingresses over gRPC in one process: what holds for all cells together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from deployments.errors import PoolUnavailableError
from deployments.ingress.cells.router import CellRouter
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.observability.metrics.request_times import IngressTimes
from deployments.wire import liveness
from deployments.wire.cell_ids import new_id_of
from specdec_core.config import Numerics
from specdec_core.errors import InvalidRequestError
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import Role
from specdec_core.request import FinishReason, Request
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cell import Cell, cell
from tests.deployments.fake_replica import (
    FakeReplica,
    continuation,
    expected_logprobs,
    expected_prompt_logprobs,
)

LONG = 200
"""Tokens of a request that is still running when its coordinator dies at its first."""


class World:
    """Two cells of a target each, two ingresses; the routers' clock stands still."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = cells
        self.now = 0.0
        self.routers: list[CellRouter] = []
        self.clients: list[SchedulerClient] = []

    async def start(self, fingerprints: tuple[str, str]) -> None:
        for place, parts in enumerate(self.cells):
            fake = FakeReplica(
                Role.TARGET, numerics=Numerics.EXACT, fingerprint=fingerprints[place]
            )
            parts.start_replica(f"t{place}", Role.TARGET, fake)
        for name in ("one", "other"):
            clients = [await parts.client(name) for parts in self.cells]
            router = CellRouter(clients, IngressTimes(), clock=lambda: self.now, move_after_s=5.0)
            self.routers.append(router)
            self.clients += clients
            await until(lambda clients=clients: all(client.has_targets for client in clients))

    def wait_for_moves(self) -> None:
        """As if the bound had passed."""
        for _ in range(2):
            for router in self.routers:
                router.look()
            self.now += 5.1


@contextlib.asynccontextmanager
async def world(fingerprints: tuple[str, str] = ("bits", "bits")) -> AsyncIterator[World]:
    async with cell() as one, cell() as other:
        started = World([one, other])
        await started.start(fingerprints)
        yield started


def request(request_id: str, num_tokens: int = LONG, **params: Any) -> Request:
    sampling = SamplingParams(max_tokens=num_tokens, temperature=0.0, **params)
    return Request(request_id=request_id, prompt_token_ids=(3, 1, 4, 1, 5), params=sampling)


def expected(asked: Request) -> list[int]:
    return continuation(asked.prompt_token_ids, asked.params.max_tokens)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def collect(router: CellRouter, asked: Request, begun: asyncio.Event | None = None) -> Any:
    """All token ids; at the first of them `begun` is set."""
    tokens: list[int] = []
    async for event in router.generate(asked):
        assert event.index == len(tokens)
        tokens += event.token_ids
        if begun is not None:
            begun.set()
    return tokens


async def test_every_cell_works_and_gives_the_ids_of_plain_decoding() -> None:
    async with world() as w:
        asked = [
            request(router.new_request_id(), 3 + number)
            for number in range(20)
            for router in w.routers
        ]
        answers = await asyncio.gather(
            *(collect(w.routers[place % 2], one) for place, one in enumerate(asked))
        )
        assert answers == [expected(one) for one in asked]
        status = await w.routers[0].pool_status()
        finished = [one.counters["num_finished_length"] for one in status.cells]
        assert min(finished) > 0
        assert sum(finished) == 40


async def test_a_request_of_a_lost_cell_goes_on_in_the_other_with_nothing_told_twice() -> None:
    async with world() as w:
        asked = request(new_id_of(0, 2), num_logprobs=2, num_prompt_logprobs=1)
        asked = replace(asked, client="key")
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        prompt_logprobs: list[TokenLogprobs] = []
        async for event in w.routers[0].generate(asked):
            if not tokens:
                await w.cells[0].kill_coordinator()
                await until(lambda: w.routers[0].state.num_targets == 1)
                w.wait_for_moves()
            tokens += event.token_ids
            logprobs += event.logprobs
            prompt_logprobs += event.prompt_logprobs
        assert tokens == expected(asked)
        assert logprobs == expected_logprobs(asked.prompt_token_ids, LONG, 2)
        assert prompt_logprobs == expected_prompt_logprobs(asked.prompt_token_ids, 1)
        assert not any(client.num_divergences for client in w.clients)
        assert w.cells[1].driver.scheduler.counters().num_finished[FinishReason.LENGTH] == 1
        usage = w.cells[1].driver.quotas.usage["key"]
        assert usage.num_requests == 0, "what moves is not a new request"
        assert 0 < usage.num_tokens < LONG


async def test_a_cell_that_lost_its_targets_is_left_as_well_and_forgets_the_request() -> None:
    async with world() as w:
        asked, begun = request(new_id_of(0, 2)), asyncio.Event()
        running = asyncio.create_task(collect(w.routers[0], asked, begun))
        await begun.wait()
        await w.cells[0].cancel("t0")
        await until(lambda: w.routers[0].state.num_targets == 1)
        assert not running.done()
        w.wait_for_moves()
        assert await running == expected(asked)
        await until(lambda: w.cells[0].driver.scheduler.num_live == 0)


async def test_what_waits_at_a_cell_that_never_came_up_moves_with_nothing_to_go_on_from() -> None:
    async with world() as w:
        for place, parts in enumerate(w.cells):
            await parts.cancel(f"t{place}")
        await until(lambda: w.routers[0].state.num_targets == 0)
        asked = request(new_id_of(0, 2), 20, num_prompt_logprobs=1)
        running = asyncio.create_task(collect(w.routers[0], asked))
        await until(lambda: w.cells[0].driver.scheduler.num_waiting == 1)
        w.wait_for_moves()
        assert w.cells[0].driver.scheduler.num_waiting == 1
        w.cells[1].start_replica("t1", Role.TARGET)
        await until(lambda: w.routers[0].state.num_targets == 1)
        w.wait_for_moves()
        assert await running == expected(asked)
        await until(lambda: w.cells[0].driver.scheduler.num_live == 0)


async def test_the_other_cells_requests_stay_where_they_are() -> None:
    async with world() as w:
        router, driver = w.routers[0], w.cells[1].driver
        begun = asyncio.Event()
        asked = request(new_id_of(1, 2))
        running = asyncio.create_task(collect(router, asked, begun))
        await begun.wait()
        await w.cells[0].kill_coordinator()
        w.wait_for_moves()
        assert await running == expected(asked)
        assert driver.scheduler.counters().num_finished == {FinishReason.LENGTH: 1}
        # No request was submitted a second time: all rounds are of one attempt.
        assert driver.scheduler.counters().num_committed == LONG


async def test_exact_tokens_wait_for_their_own_bits_and_go_on_when_they_are_back() -> None:
    async with world(("bits", "other bits")) as w:
        asked = request(new_id_of(0, 2))
        begun = asyncio.Event()
        running = asyncio.create_task(collect(w.routers[0], asked, begun))
        await begun.wait()
        await w.cells[0].kill_coordinator()
        await until(lambda: w.routers[0].state.num_targets == 1)
        w.wait_for_moves()
        await asyncio.sleep(0.05)
        assert not running.done()
        await w.cells[0].start_coordinator()
        assert await running == expected(asked)
        assert w.cells[1].driver.scheduler.counters().num_committed == 0


@pytest.mark.parametrize("home", [0, 1])
async def test_an_id_is_in_use_for_every_ingress(home: int) -> None:
    async with world() as w:
        asked, begun = request(new_id_of(home, 2)), asyncio.Event()
        running = asyncio.create_task(collect(w.routers[0], asked, begun))
        await begun.wait()
        for router in w.routers:
            with pytest.raises(InvalidRequestError, match="in use"):
                await collect(router, asked)
        assert await running == expected(asked)
        assert await collect(w.routers[1], asked) == expected(asked)


async def test_any_ingress_may_abort_a_request_even_one_that_has_moved() -> None:
    async with world() as w:
        for is_moved in (False, True):
            asked = request(new_id_of(0, 2), 300)
            reasons: list[FinishReason] = []
            async for event in w.routers[0].generate(asked):
                if event.index == 0 and is_moved:
                    await w.cells[0].kill_coordinator()
                    await until(lambda: w.routers[0].state.num_targets == 1)
                    w.wait_for_moves()
                    await asyncio.sleep(0)
                    moved = asyncio.create_task(_abort_in(w, asked.request_id))
                elif event.index == 0:
                    assert await w.routers[1].abort(asked.request_id)
                reasons += [event.finish_reason] if event.finish_reason else []
            assert reasons == [FinishReason.ABORT]
        await moved
        with pytest.raises(PoolUnavailableError):  # its home cannot say
            await w.routers[1].abort(asked.request_id)


async def _abort_in(w: World, request_id: str) -> None:
    """Through the other ingress, once the other cell has it."""
    await until(lambda: request_id in w.cells[1].driver.requests)
    assert await w.routers[1].abort(request_id)


async def test_ingresses_learn_what_others_have_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next heartbeat tells them."""
    monkeypatch.setattr(liveness, "HEARTBEAT_S", 0.05)
    async with world() as w:
        begun = asyncio.Event()
        asked = request(new_id_of(0, 2), 300)
        running = asyncio.create_task(collect(w.routers[0], asked, begun))
        await begun.wait()
        assert [client.num_requests for client in w.routers[0]._cells] == [1, 0]
        await until(lambda: w.routers[1]._cells[0].num_requests == 1)
        assert w.routers[0]._cells[0].num_requests == 1
        running.cancel()
        await until(lambda: w.cells[0].driver.scheduler.num_live == 0)
        await until(lambda: w.routers[1]._cells[0].num_requests == 0)
