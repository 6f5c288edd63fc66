"""An ingress learns at once whether a request was queued, if it asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.ingress.scheduler_client import SchedulerClient
from deployments.ingress.streams import Admission, begin
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import SchedulerConfig
from specdec_core.errors import QueueFullError
from specdec_core.messages import Role
from specdec_core.request import FinishReason, Request, TokenEvent
from tests.deployments.cell import Cell, cell
from tests.deployments.cells.fake_cells import FakeCell, Ingress
from tests.deployments.coordinator.test_cell import expected, request, until

NO_TARGETS = SchedulerConfig(max_queued=2)


async def told_by(client: SchedulerClient, asked: Request, accepted: list[str]) -> list[int]:
    events = client.generate(asked, on_accepted=accepted.append)
    return [token async for event in events for token in event.token_ids]


async def connected(parts: Cell) -> SchedulerClient:
    client = await parts.client()
    await until(lambda: client.state is not None)
    return client


async def test_a_request_is_accepted_before_anybody_works_for_it() -> None:
    async with cell(NO_TARGETS) as parts:
        client, accepted = await connected(parts), list[str]()
        answer = asyncio.create_task(told_by(client, request("a"), accepted))
        await until(lambda: accepted == ["a"])
        parts.start_replica("t0", Role.TARGET)
        assert await answer == expected(request("a"))
        assert accepted == ["a"]


async def test_what_is_refused_is_not_accepted() -> None:
    async with cell(NO_TARGETS) as parts:
        client, accepted = await connected(parts), list[str]()
        answers = [asyncio.create_task(told_by(client, request(name), accepted)) for name in "abcd"]
        refused = await asyncio.wait(answers, return_when=asyncio.FIRST_EXCEPTION)
        await until(lambda: sum(one.done() for one in answers) == 2)
        for one in refused[0]:
            assert isinstance(one.exception(), QueueFullError)
        assert accepted == ["a", "b"]
        for one in answers:
            one.cancel()


async def test_a_request_that_waited_for_the_coordinator_is_accepted_when_it_is_back() -> None:
    async with cell(NO_TARGETS) as parts:
        client, accepted = await connected(parts), list[str]()
        await parts.kill_coordinator()
        await until(lambda: client.state is None)
        answer = asyncio.create_task(told_by(client, request("a"), accepted))
        await asyncio.sleep(0.05)
        assert not accepted
        await parts.start_coordinator()
        await until(lambda: accepted == ["a"])
        parts.start_replica("t0", Role.TARGET)
        assert await answer == expected(request("a"))


async def test_who_does_not_ask_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cell() as parts:
        parts.start_replica("t0", Role.TARGET)
        client = await connected(parts)
        heard: list[pb.GenerateDown] = []
        take_in = client._take_in
        monkeypatch.setattr(client, "_take_in", lambda one: (heard.append(one), take_in(one)))
        tokens = [i async for event in client.generate(request("a")) for i in event.token_ids]
        assert tokens == expected(request("a"))
        assert heard
        assert not any(message.accepted for message in heard)


async def test_a_router_passes_the_word_on() -> None:
    cells = [FakeCell(), FakeCell()]
    router, accepted = Ingress(cells).router, list[str]()
    asked = request(router.new_request_id())
    answer = router.generate(asked, on_accepted=accepted.append)
    first = asyncio.create_task(anext(answer))
    await until(lambda: accepted == [asked.request_id])
    next(one for one in cells if one.running).finish(asked.request_id)
    assert (await first).finish_reason is FinishReason.LENGTH
    await answer.aclose()


async def _answer(waits_s: float, *, fails: bool = False) -> Any:
    try:
        await asyncio.sleep(waits_s)
        if fails:
            raise QueueFullError(1, 1, 1.0)
        yield TokenEvent("a", 0, (1,))
        yield TokenEvent("a", 1, (2,))
    finally:
        ENDED.append(waits_s)


ENDED: list[float] = []


@pytest.mark.parametrize("missing", [(), ("a",), ("a", "b")])
async def test_a_stream_begins_when_every_choice_is_accepted(missing: tuple[str, ...]) -> None:
    admission = Admission(("a", "b"))
    for name in {"a", "b"} - set(missing):
        admission.accept(name)
        admission.accept(name)
    beginning = asyncio.create_task(begin(_answer(60.0), admission, 60.0))
    await asyncio.sleep(0.01)
    assert beginning.done() is not bool(missing)
    for name in missing:
        admission.accept(name)
    begun = await beginning
    assert not begun.first.done()
    ENDED.clear()
    await begun.aclose()
    assert ENDED == [60.0]


async def test_a_stream_begins_with_its_first_piece_or_after_a_while() -> None:
    begun = await begin(_answer(0.0), Admission("a"), 60.0)
    assert [(await begun.first).index, *[one.index async for one in begun.rest]] == [0, 1]
    waiting = await begin(_answer(60.0), Admission("a"), 0.01)
    assert not waiting.first.done()
    await waiting.aclose()
    with pytest.raises(QueueFullError):
        await begin(_answer(0.0, fails=True), Admission("a"), 60.0)


async def test_who_leaves_while_a_stream_begins_leaves_its_answer() -> None:
    ENDED.clear()
    beginning = asyncio.create_task(begin(_answer(60.0), Admission("a"), 60.0))
    await asyncio.sleep(0.01)
    beginning.cancel()
    await asyncio.wait([beginning])
    assert ENDED == [60.0]
