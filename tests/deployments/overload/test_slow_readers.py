"""Who reads slowly, or never, holds nobody back, and holds no seat longer than its answer takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from specdec_core.config import SchedulerConfig
from specdec_core.messages import Role
from specdec_core.request import Request, TokenEvent
from specdec_core.sampling_params import SamplingParams
from tests.deployments.cell import cell, served
from tests.deployments.fake_replica import continuation
from tests.deployments.outboxes import events_in

NUM_TOKENS = 150
NUM_SLOW = 4


def request(name: str, first: int) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=(first, 2, 3),
        params=SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0),
        end_token_ids=frozenset(),
    )


async def rest_of(events: AsyncIterator[TokenEvent]) -> list[int]:
    return [i async for event in events for i in event.token_ids]


async def test_answers_that_nobody_reads_are_made_and_kept_whole() -> None:
    """All four seats are the slow ones' at first; the fifth gets one all the same."""
    async with served(SchedulerConfig(window=NUM_SLOW, max_group_size=NUM_SLOW)) as (parts, client):
        slow = [client.generate(request(f"slow-{n}", n)) for n in range(NUM_SLOW)]
        heads = [list((await anext(events)).token_ids) for events in slow]
        quick = await rest_of(client.generate(request("quick", 9)))
        assert quick == continuation((9, 2, 3), NUM_TOKENS)
        while parts.driver.scheduler.counters().num_running or parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)
        for number, (head, events) in enumerate(zip(heads, slow, strict=True)):
            told = head + await rest_of(events)
            assert told == continuation((number, 2, 3), NUM_TOKENS)


async def test_an_ingress_that_does_not_read_its_stream_is_told_no_more_than_its_answers() -> None:
    """What waits for it is one delivery a request, however many rounds there were."""
    async with cell() as parts:
        parts.start_replica("t0", Role.TARGET)
        outbox = parts.driver.attach()
        for number in range(NUM_SLOW):
            parts.driver.submit(outbox, request(f"slow-{number}", number), resume=False)
        # Not until the pool has ended them: it ends a request before its last news is put.
        while any(f"slow-{number}" in parts.driver.requests for number in range(NUM_SLOW)):
            await asyncio.sleep(0.005)
        events = events_in(await outbox.take())
        told = {event.request_id: list(event.token_ids) for event, _ in events}
        assert len(events) == NUM_SLOW
        for number in range(NUM_SLOW):
            assert told[f"slow-{number}"] == continuation((number, 2, 3), NUM_TOKENS)
