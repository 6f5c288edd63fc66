"""Trace context in messages between our own processes."""

from __future__ import annotations

from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from specdec.v1 import coordination_pb2 as pb

_W3C = TraceContextTextMapPropagator()
"""Propagator between our own processes. OTEL_PROPAGATORS applies only to clients."""


def context_to_pb(span: Span) -> pb.TraceContext:
    """Return the context of `span` that its children need."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span))
    return pb.TraceContext(**carrier)


def context_from_pb(message: pb.TraceContext) -> Context:
    """Return the context in which to begin a child span. An invalid `message` gives no parent."""
    return _context(message.traceparent, message.tracestate)


@lru_cache(maxsize=256)
def _context(traceparent: str, tracestate: str) -> Context:
    """Return the context. It is cached because every row of a request carries the same one."""
    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    return _W3C.extract(carrier, Context())
