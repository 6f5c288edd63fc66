"""What a coordinator and a replica tell of leases, by hand: which, how much, and of whom."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.coordinator.driver import SchedulerDriver
from deployments.observability.metrics.round_stages import LeaseStages
from deployments.observability.request_observer import LiveRequest
from deployments.observability.tracing.lease_spans import LeaseSpans
from deployments.observability.tracing.scheduler_spans import SchedulerSpans, is_recorded
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import SchedulerConfig
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, Role, RowResult, RowStatus
from specdec_core.request import ErrorKind, FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler
from tests.deployments.observed import LEFT, end_of, live
from tests.deployments.tracing.memory import (
    TRACEPARENT,
    Spans,
    attributes_of,
    id_of,
    parent_id_of,
)

CLIENT = pb.TraceContext(traceparent=TRACEPARENT)
STAGES = LeaseStages(schedule_s=0.001, wire_s=0.002, replica_s=0.003, pass_s=0.050)
PROMPT = (1, 2, 3)


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def pool(spans: Spans) -> SchedulerSpans:
    return SchedulerSpans(spans.tracer)


def request(name: str = "a") -> Request:
    params = SamplingParams(max_tokens=9)
    return Request(request_id=name, prompt_token_ids=PROMPT, params=params)


def traced_as(sequence_id: int) -> LiveRequest:
    return live(request(), sequence_id=sequence_id, trace=CLIENT)


def row(sequence_id: int, base_len: int = 3, **fields: Any) -> LeaseRow:
    return LeaseRow(sequence_id, base_len, 0, (7,), **{"num_choices": 1} | fields)


def lease(*rows: LeaseRow, role: Role = Role.TARGET, number: int = 5) -> GroupLease:
    return GroupLease(
        lease_id=number, epoch=1, replica_id=f"{role}-0", role=role, rows=rows, ttl_s=1.0
    )


def result(of: GroupLease, *answers: RowResult) -> GroupResult:
    return GroupResult(
        lease_id=of.lease_id, epoch=1, replica_id=of.replica_id, rows=answers, seconds=0.05
    )


def sent(pool: SchedulerSpans, of: GroupLease) -> list[pb.RowTrace]:
    """What its replica is asked to trace."""
    message = pb.GroupLease()
    pool.sent(of, message)
    return list(message.traces)


def test_a_few_dozen_leases_of_a_request_are_told() -> None:
    assert [n for n in range(40) if is_recorded(n)] == [
        *range(8),
        8,
        10,
        12,
        14,
        16,
        20,
        24,
        28,
        32,
    ]
    assert sum(map(is_recorded, range(2_000))) == 40
    assert sum(map(is_recorded, range(100_000))) < 128, "more events a span does not keep"


def test_only_the_rows_of_traced_requests_are_named_to_the_replica(pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    (trace,) = sent(pool, lease(row(3), row(4), row(5)))
    assert trace.row == 1
    assert trace.parent.traceparent.startswith(TRACEPARENT[:36])
    assert trace.parent.traceparent != TRACEPARENT, "the pool's span is between"


def test_of_a_long_answer_few_leases_are_named(pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    named = [len(sent(pool, lease(row(4), number=n))) for n in range(2_000)]
    assert sum(named) == 40


def test_a_round_says_how_it_went(spans: Spans, pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    drafted = lease(row(4, num_choices=2), role=Role.DRAFT, number=1)
    sent(pool, drafted)
    answer = RowResult(sequence_id=4, tokens=(8, 9))
    draft_stages = STAGES._replace(pass_s=0.020)
    pool.answered(Role.DRAFT, result(drafted, answer), draft_stages)
    others = [row(number, base_len=number) for number in (5, 6)]
    verified = lease(row(4, proposal=(8, 9)), *others, number=2)
    sent(pool, verified)
    answer = RowResult(sequence_id=4, tokens=(8, 1), num_accepted=1)
    pool.answered(Role.TARGET, result(verified, answer), STAGES)
    pool.end(traced_as(4), LEFT)
    (event,) = spans.one("specdec.pool").events
    assert event.name == "specdec.round"
    assert dict(event.attributes or {}) == {
        "specdec.round": 0,
        "specdec.replica": "target-0",
        "specdec.group_size": 3,
        "specdec.group_equal_length": False,
        "specdec.num_drafted": 2,
        "specdec.num_accepted": 1,
        "specdec.num_tokens": 2,
        "specdec.draft_s": 0.020,
        "specdec.verify_s": 0.050,
        "specdec.wire_s": 0.002,
        "specdec.replica_s": 0.003,
        "specdec.schedule_s": 0.001,
    }


def test_equal_rows_are_an_equal_group(spans: Spans, pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    group = lease(row(4), row(5))
    sent(pool, group)
    pool.answered(Role.TARGET, result(group, RowResult(sequence_id=4, tokens=(1,))), STAGES)
    pool.end(traced_as(4), LEFT)
    (event,) = spans.one("specdec.pool").events
    assert (event.attributes or {})["specdec.group_equal_length"] is True


@pytest.mark.parametrize(
    ("traced", "is_prefill"),
    [
        (row(4, base_len=0), True),
        (row(4, base_len=2, num_choices=0), True),
        (row(4, base_len=9, num_choices=0), True),
        (row(4, base_len=3), False),
    ],
)
def test_what_caches_known_tokens_is_a_prefill(
    pool: SchedulerSpans, traced: LeaseRow, is_prefill: bool
) -> None:
    pool.begin(traced_as(4))
    (trace,) = sent(pool, lease(traced))
    assert trace.is_prefill is is_prefill


def test_the_queue_ends_with_the_first_lease(spans: Spans, pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    assert spans.ended == ()
    sent(pool, lease(row(4), number=1))
    sent(pool, lease(row(4), number=2))
    pool.end(traced_as(4), LEFT)
    queue, whole = spans.one("specdec.queue"), spans.one("specdec.pool")
    assert parent_id_of(queue) == id_of(whole)
    assert queue.start_time is not None
    assert whole.start_time is not None
    assert queue.end_time is not None
    assert queue.start_time - whole.start_time < 1e9
    assert queue.start_time <= queue.end_time


def test_the_end_tells_what_speculation_has_done(spans: Spans, pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    stats = RequestStats(num_rounds=3, num_drafted=12, num_accepted=7, queue_s=0.25)
    pool.end(traced_as(4), end_of(TokenEvent("a", 0, (), FinishReason.STOP, stats)))
    said = attributes_of(spans.one("specdec.pool"))
    assert said["specdec.finish_reason"] == "stop"
    assert said["specdec.num_drafted"] == 12
    assert said["specdec.num_accepted"] == 7
    assert said["specdec.queue_s"] == 0.25


def test_a_failure_is_an_error_of_the_span(spans: Spans, pool: SchedulerSpans) -> None:
    pool.begin(traced_as(4))
    event = TokenEvent("a", 0, (), FinishReason.ERROR, error="x", error_kind=ErrorKind.RETRYABLE)
    pool.end(traced_as(4), end_of(event))
    span = spans.one("specdec.pool")
    assert not span.status.is_ok
    assert attributes_of(span)["error.type"] == "retryable"


def test_a_later_attempt_ends_the_older_one(spans: Spans) -> None:
    scheduler = Scheduler(SchedulerConfig(), epoch=1)
    driver = SchedulerDriver(scheduler, epoch=1, tracer=spans.tracer)
    pool = driver.spans
    assert pool is not None
    ingress = driver.attach()
    driver.submit(ingress, request(), resume=False, trace=CLIENT)
    older = driver.scheduler.sequence_id("a")
    driver.submit(ingress, request(), resume=True, trace=CLIENT)
    newer = driver.scheduler.sequence_id("a")
    assert len(spans.named("specdec.pool")) == 1
    assert older is not None
    assert newer is not None
    assert sent(pool, lease(row(older))) == []
    assert len(sent(pool, lease(row(newer)))) == 1


def test_nothing_is_kept_of_what_has_ended(pool: SchedulerSpans) -> None:
    """Whatever its replicas still owe it."""
    pool.begin(traced_as(4))
    sent(pool, lease(row(4)))
    pool.end(traced_as(4), LEFT)
    assert not pool._by_sequence
    answered = result(lease(row(4)), RowResult(sequence_id=4, tokens=(1,)))
    pool.answered(Role.TARGET, answered, STAGES)


def test_a_row_s_span_lasts_as_long_as_its_replica_had_the_lease(spans: Spans) -> None:
    group = lease(row(4, proposal=(8, 9)), row(5))
    answers = [
        RowResult(sequence_id=4, tokens=(8, 1), num_accepted=1),
        RowResult(sequence_id=5, status=RowStatus.FAILED, error="no"),
    ]
    traces = [pb.RowTrace(row=place, parent=CLIENT) for place in (0, 1)]
    LeaseSpans(spans.tracer).record(group, result(group, *answers), traces, held_s=0.060)
    good, bad = spans.ended
    for span in (good, bad):
        assert span.name == "specdec.verify"
        assert span.end_time - span.start_time == pytest.approx(60_000_000, abs=2)  # type: ignore[operator]
        assert attributes_of(span)["specdec.lease_id"] == 5
        assert attributes_of(span)["specdec.pass_s"] == 0.05
    assert attributes_of(good)["specdec.num_drafted"] == 2
    assert attributes_of(good)["specdec.num_accepted"] == 1
    assert good.status.is_ok
    assert not bad.status.is_ok


@pytest.mark.parametrize(
    ("role", "is_prefill", "name"),
    [
        (Role.DRAFT, False, "specdec.draft"),
        (Role.DRAFT, True, "specdec.prefill"),
        (Role.TARGET, True, "specdec.prefill"),
    ],
)
def test_a_row_s_span_is_named_after_its_work(
    spans: Spans, role: Role, is_prefill: bool, name: str
) -> None:
    group = lease(row(4, num_choices=3), role=role)
    answered = result(group, RowResult(sequence_id=4, tokens=(1, 2, 3)))
    traces = [pb.RowTrace(row=0, parent=CLIENT, is_prefill=is_prefill)]
    LeaseSpans(spans.tracer).record(group, answered, traces, held_s=0.01)
    assert attributes_of(spans.one(name))["specdec.num_drafted"] == 3


def test_a_round_that_nobody_drafted_tells_no_draft_s_time(
    spans: Spans, pool: SchedulerSpans
) -> None:
    pool.begin(traced_as(4))
    drafted = lease(row(4), role=Role.DRAFT, number=1)
    verified = [lease(row(4), number=number) for number in (2, 3)]
    for group in (drafted, *verified):
        sent(pool, group)
        answer = RowResult(sequence_id=4, tokens=(8,))
        pool.answered(group.role, result(group, answer), STAGES)
    pool.end(traced_as(4), LEFT)
    told = [dict(event.attributes or {}) for event in spans.one("specdec.pool").events]
    assert ["specdec.draft_s" in attributes for attributes in told] == [True, False]


def test_an_ingress_that_dies_ends_the_spans_of_its_requests(spans: Spans) -> None:
    scheduler = Scheduler(SchedulerConfig(), epoch=1)
    driver = SchedulerDriver(scheduler, epoch=1, tracer=spans.tracer)
    pool = driver.spans
    assert pool is not None
    ingress = driver.attach()
    driver.submit(ingress, request(), resume=False, trace=CLIENT)
    driver.detach(ingress)
    assert attributes_of(spans.one("specdec.pool"))["error.type"] == "cancelled"
