"""What comes to an ingress while the coordinator is away begins with the next one as a new request:
it meets its key's limit, and nobody else's name."""

from __future__ import annotations

import asyncio

import pytest

from deployments.config.client_limits import ClientLimits
from deployments.errors import ClientLimitError
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.wire.endpoint import Endpoint
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.coordinator.test_cell import PLAIN, collect, expected, request, until


async def begin(parts: Cell, client: SchedulerClient, name: str) -> asyncio.Task[list[int]]:
    num_live = parts.driver.scheduler.num_live
    answer = asyncio.create_task(collect(client, request(name, client="ada")))
    await until(lambda: parts.driver.scheduler.num_live == num_live + 1)
    return answer


async def lose_coordinator(parts: Cell, *clients: SchedulerClient) -> None:
    await parts.kill_coordinator()
    await until(lambda: not any(client.state for client in clients))


async def test_it_does_not_pass_the_limit_of_its_key() -> None:
    async with cell(PLAIN, limits=ClientLimits(max_concurrent=1)) as parts:
        client = await parts.client()
        await until(lambda: client.state is not None)
        first = await begin(parts, client, "a")
        await lose_coordinator(parts, client)
        second = asyncio.create_task(collect(client, request("b", client="ada")))
        await asyncio.sleep(0)
        await parts.start_coordinator()
        with pytest.raises(ClientLimitError):
            await second
        parts.start_replica("t0", Role.TARGET)
        assert await first == expected(request("a"))


async def test_it_is_counted() -> None:
    async with cell(PLAIN) as parts:
        client = await parts.client()
        await lose_coordinator(parts, client)
        answer = asyncio.create_task(collect(client, request("a", client="ada")))
        await asyncio.sleep(0)
        await parts.start_coordinator()
        parts.start_replica("t0", Role.TARGET)
        await answer
        assert parts.driver.quotas.usage["ada"].num_requests == 1


async def test_it_takes_no_other_ingress_s_request_over() -> None:
    async with cell(PLAIN) as parts:
        may_come = asyncio.Event()
        may_come.set()

        async def second_to_come() -> Endpoint:
            await may_come.wait()
            return await parts.resolve()

        late = SchedulerClient(second_to_come)
        keeping = asyncio.create_task(late.run())
        clients = [await parts.client("one"), late]
        await until(lambda: all(client.state for client in clients))
        first = await begin(parts, clients[0], "a")
        await lose_coordinator(parts, *clients)
        may_come.clear()
        second = asyncio.create_task(collect(clients[1], request("a", client="ada")))
        await asyncio.sleep(0)
        await parts.start_coordinator()
        await until(lambda: "a" in parts.driver.requests)
        may_come.set()
        with pytest.raises(InvalidRequestError, match="in use"):
            await second
        parts.start_replica("t0", Role.TARGET)
        assert await first == expected(request("a"))
        keeping.cancel()
