"""A replica's part of traces: one span for each row that the coordinator asks it to trace.

Spans are made after the answer has been sent, from what is known by then. An untraced lease
therefore costs one check of an empty field.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from opentelemetry.trace import StatusCode, Tracer

from deployments.observability.tracing import names
from deployments.observability.tracing.carried import context_from_pb
from deployments.observability.tracing.scheduler_spans import span_name
from specdec.v1 import coordination_pb2 as pb
from specdec_core.messages import GroupLease, GroupResult, RowStatus


class LeaseSpans:
    """Makes the spans of one replica. Without a tracer it makes none."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer

    def record(
        self,
        lease: GroupLease,
        result: GroupResult,
        traces: Iterable[pb.RowTrace],
        held_s: float,
    ) -> None:
        """Record `lease`, which was answered a moment ago, after `held_s` seconds on this
        replica."""
        if self._tracer is None:
            return
        end_ns = time.time_ns()
        for trace in traces:
            row, answer = lease.rows[trace.row], result.rows[trace.row]
            span = self._tracer.start_span(
                span_name(lease.role, trace.is_prefill),
                context=context_from_pb(trace.parent),
                start_time=end_ns - round(held_s * 1e9),
                attributes={
                    names.LEASE_ID: lease.lease_id,
                    names.REPLICA: lease.replica_id,
                    names.GROUP_SIZE: len(lease.rows),
                    names.NUM_FED: len(row.new_ids),
                    names.PASS_S: result.seconds,
                    names.NUM_DRAFTED: len(row.proposal) or len(answer.tokens),
                    names.NUM_ACCEPTED: answer.num_accepted,
                    names.ROW_STATUS: answer.status.value,
                },
            )
            if answer.status in (RowStatus.FAILED, RowStatus.INVALID):
                span.set_status(StatusCode.ERROR, answer.status.value)
            span.end(end_ns)
