"""The coordinator's part of traces: a span per traced request, which records some leases.

A request that is not traced has no cost here. While no request is traced, a lease costs one look at
an empty dictionary. A coordinator that exports no traces has no SchedulerSpans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.trace import Span, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from deployments.observability.metrics.round_stages import LeaseStages
from deployments.observability.request_observer import LiveRequest, RequestEnd, RequestObserver
from deployments.observability.tracing import names
from deployments.observability.tracing.carried import context_from_pb, context_to_pb
from deployments.observability.tracing.request_span import speculation_attributes
from specdec.v1 import coordination_pb2 as pb
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, Role, RowResult
from specdec_core.request import FinishReason, TokenEvent


def is_recorded(number: int) -> bool:
    """Return whether the lease of this number is recorded in its request's trace.

    The first 8 leases are, then 4 of each doubling: 17 of 40, 40 of 2,000, 63 of 100,000. This is
    below the 128 events that a span keeps.
    """
    return number % (1 << max(number.bit_length() - 3, 0)) == 0


@dataclass(frozen=True, slots=True)
class _RecordedRow:
    """A recorded row of a lease that has not been answered."""

    row: LeaseRow
    number: int
    group_size: int
    is_equal: bool


@dataclass(eq=False, slots=True)
class _Traced:
    """A live request that is traced."""

    num_prompt: int
    span: Span
    parent: pb.TraceContext
    """Parent of the replicas' spans."""
    began_ns: int
    num_leases: dict[Role | None, int] = field(default_factory=dict)
    """Number of leases that chose tokens, by role. Key None counts leases of either role that only
    cached known tokens."""
    open: dict[int, _RecordedRow] = field(default_factory=dict)
    """Recorded rows by lease ID. Rows of a dead replica stay until the request ends."""
    draft_s: float | None = None
    """Seconds of the draft's pass for the next verification, if that pass was recorded."""

    def count(self, kind: Role | None) -> int:
        """Return the number of the request's next lease of this kind."""
        number = self.num_leases.get(kind, 0)
        self.num_leases[kind] = number + 1
        return number


class SchedulerSpans(RequestObserver):
    """Spans of one coordinator."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._by_sequence: dict[int | None, _Traced] = {}

    def begin(self, live: LiveRequest) -> None:
        """Begin the span of a request that is traced, unless it has no token left to compute."""
        if live.trace is None or live.sequence_id is None:
            return
        span = self._tracer.start_span(names.POOL_SPAN, context=context_from_pb(live.trace))
        if not span.is_recording():
            return
        span.set_attribute(names.REQUEST_ID, live.request.request_id)
        num_prompt = len(live.request.prompt_token_ids)
        traced = _Traced(num_prompt, span, context_to_pb(span), time.time_ns())
        self._by_sequence[live.sequence_id] = traced

    def end(self, live: LiveRequest, end: RequestEnd) -> None:
        """End the span of a request. Most requests are not traced."""
        traced = self._by_sequence.pop(live.sequence_id, None)
        if traced is None:
            return
        if end.event is None:
            traced.span.set_attribute(names.ERROR_TYPE, names.CANCELLED)
        else:
            _record_end(traced.span, end.event)
        traced.span.end()

    def sent(self, lease: GroupLease, message: pb.GroupLease) -> None:
        """Record `lease`, which is about to leave as `message`. Adds the rows that the replica must
        trace to `message`."""
        if not self._by_sequence:
            return
        rows = list(self._recorded_rows(lease))
        if not rows:
            return
        is_equal = len({row.shape for row in lease.rows}) == 1
        for index, number, traced, is_prefill in rows:
            row = lease.rows[index]
            traced.open[lease.lease_id] = _RecordedRow(row, number, len(lease.rows), is_equal)
            message.traces.add(row=index, parent=traced.parent, is_prefill=is_prefill)

    def answered(self, role: Role, result: GroupResult, stages: LeaseStages | None) -> None:
        """Record the answer to a lease. `stages` is None if the lease's times are unknown."""
        if not self._by_sequence or stages is None:
            return
        for answer in result.rows:
            traced = self._by_sequence.get(answer.sequence_id)
            recorded = None if traced is None else traced.open.pop(result.lease_id, None)
            if traced is None or recorded is None or not recorded.row.num_choices:
                continue
            if role is Role.DRAFT:
                traced.draft_s = stages.pass_s
            else:
                _record_round(traced, recorded, answer, stages, result.replica_id)
                traced.draft_s = None

    def _recorded_rows(self, lease: GroupLease) -> Iterator[tuple[int, int, _Traced, bool]]:
        """Yield index of the row, lease number, request, and whether the row is a prefill."""
        for index, row in enumerate(lease.rows):
            traced = self._by_sequence.get(row.sequence_id)
            if traced is None:
                continue
            if not traced.num_leases:
                self._record_queue(traced)
            is_prefill = row.base_len < traced.num_prompt or not row.num_choices
            number = traced.count(lease.role if row.num_choices else None)
            if is_recorded(number):
                yield index, number, traced, is_prefill

    def _record_queue(self, traced: _Traced) -> None:
        self._tracer.start_span(
            names.QUEUE_SPAN,
            context=set_span_in_context(traced.span),
            start_time=traced.began_ns,
        ).end()


def span_name(role: Role, is_prefill: bool) -> str:
    """Return the span name of a row of a lease."""
    if is_prefill:
        return names.PREFILL_SPAN
    return names.DRAFT_SPAN if role is Role.DRAFT else names.VERIFY_SPAN


def _record_round(
    traced: _Traced, recorded: _RecordedRow, answer: RowResult, stages: LeaseStages, replica_id: str
) -> None:
    attributes: dict[str, AttributeValue] = {
        names.ROUND: recorded.number,
        names.REPLICA: replica_id,
        names.GROUP_SIZE: recorded.group_size,
        names.GROUP_IS_EQUAL: recorded.is_equal,
        names.NUM_DRAFTED: len(recorded.row.proposal),
        names.NUM_ACCEPTED: answer.num_accepted,
        names.NUM_TOKENS: len(answer.tokens),
        names.VERIFY_S: stages.pass_s,
        names.WIRE_S: stages.wire_s,
        names.REPLICA_S: stages.replica_s,
    }
    if stages.schedule_s is not None:
        attributes[names.SCHEDULE_S] = stages.schedule_s
    if traced.draft_s is not None:
        attributes[names.DRAFT_S] = traced.draft_s
    traced.span.add_event(names.ROUND_EVENT, attributes)


def _record_end(span: Span, event: TokenEvent) -> None:
    assert event.finish_reason is not None, "it is the last"
    span.set_attribute(names.FINISH_REASON, event.finish_reason.value)
    if event.stats is not None:
        span.set_attributes(speculation_attributes([event.stats]))
    if event.finish_reason is FinishReason.ERROR:
        span.set_attribute(names.ERROR_TYPE, event.error_kind.value)
        span.set_status(StatusCode.ERROR, event.error_kind.value)
