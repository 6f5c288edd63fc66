"""What waits for a slow reader: merged, in order, bounded, and closed with nothing lost."""

from __future__ import annotations

import asyncio

import pytest

from deployments.coordinator.streams import IngressOutbox, WorkOutbox
from deployments.errors import Failure, FailureKind
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import GroupLease, Role
from specdec_core.request import FinishReason, TokenEvent
from specdec_core.scheduler import SendFree, SendLease
from tests.deployments.outboxes import events_in, taken, told


def event(name: str, index: int, *ids: int, end: bool = False) -> TokenEvent:
    reason = FinishReason.LENGTH if end else None
    return TokenEvent(request_id=name, index=index, token_ids=ids, finish_reason=reason)


def lease(number: int) -> SendLease:
    return SendLease(
        GroupLease(lease_id=number, epoch=1, replica_id="r", role=Role.TARGET, rows=(), ttl_s=1.0)
    )


async def next_events(outbox: IngressOutbox) -> list[TokenEvent]:
    """Wait for the next message and return its events, none of which is a failure."""
    events = events_in(await asyncio.wait_for(outbox.take(), 1))
    assert not any(failure for _, failure in events)
    return [event for event, _ in events]


def test_deltas_of_a_slow_reader_become_one() -> None:
    outbox = IngressOutbox()
    outbox.put(event("a", 0, 1, 2))
    outbox.put(event("b", 0, 9))
    outbox.put(event("a", 2, 3, end=True))
    assert asyncio.run(next_events(outbox)) == [event("a", 0, 1, 2, 3, end=True), event("b", 0, 9)]


async def test_news_between_the_first_and_the_last_waits_and_comes_with_what_follows() -> None:
    outbox = IngressOutbox()
    outbox.hold_s = 0.02
    outbox.put(event("a", 1, 7))
    assert not outbox.has_items()
    outbox.put(event("a", 2, 8))
    assert await next_events(outbox) == [event("a", 1, 7, 8)]


@pytest.mark.parametrize("pressing", [event("b", 0, 9), event("b", 4, 9, end=True)])
async def test_a_first_or_last_token_goes_at_once_and_alone(pressing: TokenEvent) -> None:
    """What others wait for still goes together, at the time that the first of it has waited."""
    outbox = IngressOutbox()
    outbox.hold_s = 0.05
    outbox.put(event("a", 1, 7))
    outbox.put(pressing)
    assert outbox.has_items()
    assert await next_events(outbox) == [pressing]
    outbox.put(event("c", 3, 5))
    assert not outbox.has_items()
    assert await next_events(outbox) == [event("a", 1, 7), event("c", 3, 5)]


async def test_the_last_token_takes_along_what_waits_of_its_request() -> None:
    outbox = IngressOutbox()
    outbox.hold_s = 0.02
    outbox.put(event("a", 1, 7))
    outbox.put(event("a", 2, 8, end=True))
    assert await next_events(outbox) == [event("a", 1, 7, 8, end=True)]
    await asyncio.sleep(0.03)
    assert not outbox.has_items(), "nobody is woken for what is read already"


async def test_what_follows_unread_news_of_its_request_does_not_wait_behind_it() -> None:
    outbox = IngressOutbox()
    outbox.hold_s = 1.0
    outbox.put(event("a", 0, 7))
    outbox.put(event("a", 1, 8))
    assert await next_events(outbox) == [event("a", 0, 7, 8)]


async def test_a_stream_that_closes_delivers_what_waits() -> None:
    outbox = IngressOutbox()
    outbox.hold_s = 1.0
    outbox.put(event("a", 1, 7))
    outbox.close()
    assert await next_events(outbox) == [event("a", 1, 7)]
    assert await outbox.take() is None


def test_log_probabilities_are_merged_in_step_with_their_tokens() -> None:
    outbox = IngressOutbox()
    entries = [TokenLogprobs(-float(i), ((i, -0.5),)) for i in range(3)]
    for part, reported in (
        (event("a", 0, 7, 8), entries[:2]),
        (event("a", 2, 9, end=True), entries[2:]),
    ):
        scored = tuple(entries) if part.index == 0 else ()
        outbox.put(part._replace(logprobs=tuple(reported), prompt_logprobs=scored))
    (merged,) = asyncio.run(next_events(outbox))
    assert (merged.token_ids, merged.logprobs) == ((7, 8, 9), tuple(entries))
    assert merged.prompt_logprobs == tuple(entries)


def test_what_does_not_join_stays_apart() -> None:
    outbox = IngressOutbox()
    outbox.put(event("a", 5, 1))
    outbox.put(event("a", 2, 7, 8))
    outbox.put(event("a", 4, 9))
    assert asyncio.run(next_events(outbox)) == [event("a", 5, 1), event("a", 2, 7, 8, 9)]


def test_a_failure_rides_on_the_last_delta() -> None:
    outbox = IngressOutbox()
    failure = Failure(kind=FailureKind.ROW_FAILED, message="no")
    outbox.put(event("a", 0, 1))
    outbox.put(event("a", 1, 2, end=True), failure)
    last = event("a", 0, 1, 2, end=True)._replace(error="no")
    assert told(outbox) == [(last, failure)]


def test_a_closed_stream_still_delivers_then_ends() -> None:
    outbox = IngressOutbox()
    outbox.put(event("a", 0, 1))
    outbox.put_abort("b", was_live=True)
    outbox.close()
    message = taken(outbox)
    assert [(answer.request_id, answer.aborted) for answer in message.aborts] == [("b", True)]
    assert len(message.events) == 1
    assert taken(outbox) is None


def test_frees_merge_and_never_pass_a_lease() -> None:
    outbox = WorkOutbox()
    for command in (lease(1), SendFree("r", (1,)), SendFree("r", (2, 3)), lease(2)):
        outbox.put(command)
    assert taken(outbox) == [lease(1), SendFree("r", (1, 2, 3)), lease(2)]


def test_a_replica_that_does_not_read_is_cut_off() -> None:
    outbox = WorkOutbox()
    for number in range(3):
        outbox.put(lease(number))
    assert outbox.is_closed
    assert taken(outbox) is None
