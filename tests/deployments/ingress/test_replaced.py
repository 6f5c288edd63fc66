"""An ingress whose health nobody checks any more gives up what waits for a target."""

from __future__ import annotations

import asyncio

import pytest

from deployments.errors import PoolUnavailableError
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.ingress_replica import REPLACED, RedeployDetector
from deployments.wire.endpoint import Endpoint
from specdec.v1 import coordination_pb2 as pb
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cells.fake_cells import FakeCell, Ingress

_CHECKS = 12
"""Looks, one a second, in which Serve should have asked six times."""


async def unreachable() -> Endpoint:
    raise ConnectionError


class Waiting:
    """An ingress with a request that waits for a target."""

    def __init__(self) -> None:
        self.pool = SchedulerClient(unreachable)
        self.replaced = RedeployDetector(self.pool)
        request = Request(
            request_id="a", prompt_token_ids=(1,), params=SamplingParams(max_tokens=9)
        )
        self.answer: asyncio.Task[TokenEvent] = asyncio.create_task(
            anext(self.pool.generate(request))
        )

    def hear(self, num_targets: int) -> None:
        self.pool._take_in(pb.GenerateDown(state=pb.PoolState(num_targets=num_targets)))

    async def look(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)
            self.replaced.look()
        await asyncio.sleep(0)


async def test_what_waits_for_a_target_is_given_up_when_the_checks_have_ended() -> None:
    ingress = Waiting()
    ingress.hear(0)
    for _ in range(3):
        ingress.replaced.looks = 0
        await ingress.look(_CHECKS)
    assert not ingress.answer.done()
    await ingress.look(1)
    with pytest.raises(PoolUnavailableError, match=REPLACED):
        await ingress.answer


async def test_it_is_not_given_up_before_the_first_check_nor_beside_a_target() -> None:
    ingress = Waiting()
    await ingress.look(3 * _CHECKS)
    ingress.hear(1)
    ingress.replaced.looks = 0
    await ingress.look(3 * _CHECKS)
    assert not ingress.answer.done()
    ingress.hear(0)
    await ingress.look(1)
    with pytest.raises(PoolUnavailableError, match=REPLACED):
        await ingress.answer


async def test_with_several_cells_one_that_has_a_target_is_enough() -> None:
    cells = [FakeCell(num_targets=0), FakeCell(num_targets=1)]
    ingress = Ingress(cells)
    replaced = RedeployDetector(ingress.router)
    name = await ingress.begin()
    replaced.looks = 0
    for _ in range(3 * _CHECKS):
        replaced.look()
    await asyncio.sleep(0)
    assert not ingress.tasks[name].done()
    cells[1].up(num_targets=0)
    replaced.look()
    with pytest.raises(PoolUnavailableError, match=REPLACED):
        await ingress.tasks[name]
