"""A span's context on its way between the processes of a service, in W3C's words."""

from __future__ import annotations

from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from specdec.v1 import coordination_pb2 as pb

_W3C = TraceContextTextMapPropagator()
"""Between our own processes, whatever OTEL_PROPAGATORS says of clients."""


def context_to_pb(span: Span) -> pb.TraceContext:
    """What its children need to know of `span`."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span))
    return pb.TraceContext(**carrier)


def context_from_pb(message: pb.TraceContext) -> Context:
    """To begin a child in; without a parent when `message` makes no sense."""
    return _context(message.traceparent, message.tracestate)


@lru_cache(maxsize=256)
def _context(traceparent: str, tracestate: str) -> Context:
    """Every row of a request brings the same."""
    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    return _W3C.extract(carrier, Context())
