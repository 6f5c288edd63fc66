"""A key's limit over several cells: each keeps its share, together they let the limit in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.client_limits import ClientLimits
from deployments.coordinator.quotas import ClientQuotas
from deployments.errors import ClientLimitError
from deployments.ingress.cells.router import CellRouter
from deployments.observability.metrics.request_times import IngressTimes
from deployments.wire.cell_ids import new_id_of, order_of, share_of
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cell import Cell, cell
from tests.deployments.cells.fake_cells import FakeCell, Ingress
from tests.deployments.coordinator.test_client_ledger import asked, begin
from tests.deployments.fake_replica import FakeReplica, continuation
from tests.deployments.observed import LEFT, live

NUM_CELLS = 3


@given(st.integers(0, 50), st.text(min_size=1), st.integers(1, 9))
def test_the_shares_of_a_limit_are_even_and_add_up_to_it(
    limit: int, client: str, num_cells: int
) -> None:
    shares = [share_of(limit, client, place, num_cells) for place in range(num_cells)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_what_is_left_over_goes_to_another_cell_for_another_key() -> None:
    holders = Counter(
        place
        for number in range(600)
        for place in range(3)
        if share_of(1, f"key {number}", place, 3)
    )
    assert all(150 < count < 250 for count in holders.values())


def test_a_cell_counts_its_share_and_says_so() -> None:
    homes = order_of("ada", 2)
    ledgers = {
        place: ClientQuotas(
            ClientLimits(max_concurrent=3, requests_per_minute=5, cell=place, num_cells=2)
        )
        for place in homes
    }
    for place, share in zip(homes, (2, 1), strict=True):
        for number in range(share):
            begin(ledgers[place], str(number))
        with pytest.raises(ClientLimitError, match=f"the limit in cell {place} is {share}"):
            begin(ledgers[place], "more")
    for number in range(2):
        ledgers[homes[0]].end(live(asked(str(number))), LEFT)
    begin(ledgers[homes[0]], "third")
    ledgers[homes[0]].end(live(asked("third")), LEFT)
    with pytest.raises(ClientLimitError, match=f"more than 3 requests a minute in cell {homes[0]}"):
        begin(ledgers[homes[0]], "fourth")


def test_a_cell_without_a_share_says_to_come_back_last() -> None:
    place = order_of("ada", 2)[1]
    for limits in (
        ClientLimits(max_concurrent=1, cell=place, num_cells=2),
        ClientLimits(requests_per_minute=1, cell=place, num_cells=2),
    ):
        with pytest.raises(ClientLimitError) as refused:
            begin(ClientQuotas(limits), "a", now=7.0)
        assert refused.value.retry_after_s == 60.0


async def test_a_request_that_one_cell_has_no_share_for_begins_in_another() -> None:
    cells = [FakeCell() for _ in range(NUM_CELLS)]
    ingress = Ingress(cells)
    cells[0].refuse(ClientLimitError("full", 1.0))
    name = await ingress.begin(new_id_of(0, NUM_CELLS))
    await asyncio.sleep(0.01)
    (place,) = (place for place, one in enumerate(cells) if name in one.running)
    assert place == order_of(name, NUM_CELLS)[1]
    assert await ingress.router.abort(name)
    assert [one.aborted for one in cells[1:]].count([name]) == 1
    assert not cells[0].aborted
    cells[place].finish(name)
    assert [event.token_ids for event in await ingress.tasks[name]] == [(1,)]


async def test_when_no_cell_has_a_share_left_the_soonest_says_when_to_come_back() -> None:
    cells = [FakeCell() for _ in range(NUM_CELLS)]
    ingress = Ingress(cells)
    for place, retry_after_s in enumerate((60.0, 2.0, 9.0)):
        cells[place].refuse(ClientLimitError(f"cell {place}", retry_after_s))
    name = await ingress.begin()
    with pytest.raises(ClientLimitError, match="cell 1"):
        await ingress.tasks[name]
    assert [one.num_begun for one in cells] == [1, 1, 1]
    cells[1].away()  # nobody who has no target is asked
    name = await ingress.begin()
    with pytest.raises(ClientLimitError, match="cell 2"):
        await ingress.tasks[name]
    assert [one.num_begun for one in cells] == [2, 1, 2]


class HeldReplica(FakeReplica):
    """Answers no lease before `go`."""

    def __init__(self, go: threading.Event) -> None:
        super().__init__(Role.TARGET)
        self._go = go

    def execute(self, lease: GroupLease) -> GroupResult:
        assert self._go.wait(60)
        return super().execute(lease)


@pytest.mark.parametrize("limit", [1, 5])
async def test_two_ingresses_let_a_keys_limit_into_two_cells_and_no_more(limit: int) -> None:
    go = threading.Event()
    async with contextlib.AsyncExitStack() as stack:
        parts = [
            await stack.enter_async_context(
                cell(limits=ClientLimits(max_concurrent=limit, cell=place, num_cells=2))
            )
            for place in range(2)
        ]
        stack.callback(go.set)
        for place, one in enumerate(parts):
            one.start_replica(f"t{place}", Role.TARGET, HeldReplica(go))
        routers = [await router_of(parts, name) for name in ("one", "other")]
        tasks = [
            asyncio.create_task(collected(routers[number % 2], f"{number}")) for number in range(20)
        ]
        while sum(task.done() for task in tasks) < 20 - limit:
            await asyncio.sleep(0.005)
        assert sum(one.driver.quotas.usage["ada"].num_running for one in parts) == limit
        go.set()
        answers = await asyncio.gather(*tasks)
        assert [one for one in answers if one is not None] == [continuation((7,), 9)] * limit
        assert [one.driver.quotas.usage["ada"].num_running for one in parts] == [0, 0]


async def router_of(parts: list[Cell], name: str) -> CellRouter:
    clients = [await one.client(name) for one in parts]
    while not all(client.has_targets for client in clients):
        await asyncio.sleep(0.005)
    return CellRouter(clients, IngressTimes())


async def collected(router: CellRouter, name: str) -> list[int] | None:
    """None where the key has its limit."""
    params = SamplingParams(max_tokens=9, temperature=0.0)
    request = Request(request_id=name, prompt_token_ids=(7,), params=params, client="ada")
    try:
        return [token async for event in router.generate(request) for token in event.token_ids]
    except ClientLimitError:
        return None
