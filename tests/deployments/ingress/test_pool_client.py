"""The ingress's side of the stream: what it was told twice reaches the client once."""

from __future__ import annotations

import asyncio

import pytest

from deployments.errors import PoolUnavailableError
from deployments.ingress.scheduler_client import SchedulerClient
from deployments.wire.endpoint import Endpoint
from deployments.wire.request_codec import write_event
from specdec.v1 import coordination_pb2 as pb
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.sampling_params import SamplingParams

NUM_TOKENS = 9


def entry(place: int) -> TokenLogprobs:
    return TokenLogprobs(-float(place), ((place, -place / 4),))


def told(start: int, stop: int) -> pb.GenerateDown:
    """Tokens start..stop - 1, each with an entry that names its place."""
    reason = FinishReason.LENGTH if stop == NUM_TOKENS else None
    event = TokenEvent(
        request_id="a",
        index=start,
        token_ids=tuple(range(100 + start, 100 + stop)),
        logprobs=tuple(entry(place) for place in range(start, stop)),
        finish_reason=reason,
    )
    message = pb.GenerateDown()
    write_event(message.events.add(), event, None)
    return message


async def unreachable() -> Endpoint:
    raise ConnectionError


@pytest.mark.parametrize("second", [(0, 6), (2, 4), (2, 6), (3, 6), (4, 6)])
async def test_log_probabilities_are_cut_in_step_with_tokens_that_came_before(
    second: tuple[int, int],
) -> None:
    client = SchedulerClient(unreachable)
    params = SamplingParams(max_tokens=NUM_TOKENS, num_logprobs=1)
    events = client.generate(Request(request_id="a", prompt_token_ids=(1,), params=params))
    first = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    for start, stop in ((0, 4), second, (second[1], NUM_TOKENS)):
        client._take_in(told(start, stop))
    answer = [await first, *[event async for event in events]]
    assert [i for e in answer for i in e.token_ids] == list(range(100, 100 + NUM_TOKENS))
    assert [x for e in answer for x in e.logprobs] == [entry(i) for i in range(NUM_TOKENS)]
    assert all(len(event.token_ids) == len(event.logprobs) for event in answer)


async def test_a_pool_serves_until_its_targets_have_been_away_for_the_resume_timeout() -> None:
    """Targets that leave, and a coordinator that does, count alike; who never came is away."""
    now = 100.0
    client = SchedulerClient(unreachable, clock=lambda: now, resume_timeout_s=30.0)

    def hear(num_targets: int) -> None:
        client._take_in(pb.GenerateDown(state=pb.PoolState(num_targets=num_targets)))

    hear(0)
    assert not client.is_serving
    hear(2)
    now += 1000.0
    assert client.is_serving
    for lose in (lambda: hear(0), client._lost):
        hear(1)
        lose()
        now += 30.0
        assert client.is_serving
        client._lost()
        hear(0)
        now += 0.1
        assert not client.is_serving
    hear(1)
    assert client.is_serving


def num_targets(count: int) -> pb.GenerateDown:
    return pb.GenerateDown(state=pb.PoolState(num_targets=count))


def begun(client: SchedulerClient) -> asyncio.Task[TokenEvent]:
    params = SamplingParams(max_tokens=NUM_TOKENS)
    events = client.generate(Request(request_id="a", prompt_token_ids=(1,), params=params))
    return asyncio.create_task(anext(events))


async def test_who_waits_for_targets_that_were_there_is_told_after_the_resume_timeout() -> None:
    """The coordinator's stream stays up all the while: nothing else would end the wait."""
    client = SchedulerClient(unreachable, resume_timeout_s=0.2)
    client._take_in(num_targets(1))
    waiting = begun(client)
    await asyncio.sleep(0)
    client._take_in(num_targets(0))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    with pytest.raises(PoolUnavailableError, match="no target"):
        await waiting
    with pytest.raises(PoolUnavailableError, match="no target"):  # who comes later: at once
        await begun(client)
    client._take_in(num_targets(1))
    late = begun(client)
    await asyncio.sleep(0)
    client._take_in(told(0, 4))
    assert (await late).token_ids == (100, 101, 102, 103)


@pytest.mark.parametrize("counts", [(0,), (1, 0, 2), (1, 0, 0, 1)])
async def test_who_waits_for_a_target_goes_on_waiting_when_one_came_back_or_none_ever_came(
    counts: tuple[int, ...],
) -> None:
    client = SchedulerClient(unreachable, resume_timeout_s=0.1)
    waiting = begun(client)
    await asyncio.sleep(0)
    for count in counts:
        client._take_in(num_targets(count))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    waiting.cancel()


async def test_a_request_is_new_on_its_first_stream_and_resumed_on_the_next() -> None:
    """A coordinator refuses a new request whose id is in use. It still has that of the first
    stream."""
    client, first, second = SchedulerClient(unreachable), asyncio.Queue(), asyncio.Queue()
    client._connected(("host", 1), first)
    answer = begun(client)
    await asyncio.sleep(0)
    client._take_in(told(0, 4))
    await answer
    client._lost()
    client._connected(("host", 1), second)
    submits = [queue.get_nowait().submit for queue in (first, second)]
    assert [submit.resume for submit in submits] == [False, True]
