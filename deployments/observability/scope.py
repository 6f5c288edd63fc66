"""Scope of the request that a task works for: its IDs, for log lines, and its span.

Serve gives every request a task of its own, so a scope is begun and never left.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from specdec.v1 import coordination_pb2 as pb

if TYPE_CHECKING:
    from deployments.observability.tracing.request_span import RequestSpan


@dataclass(eq=False, slots=True)
class RequestScope:
    """Scope of one client request, with all of its choices."""

    context: SpanContext = INVALID_SPAN_CONTEXT
    """Context of our span. Without our span, context of the client's span."""
    span: RequestSpan | None = None
    """Our span. None if the request is not traced."""
    request_id: str = ""
    """Request ID. Empty until the request has been checked."""


_scope: ContextVar[RequestScope | None] = ContextVar("specdec_request_scope", default=None)


def current_scope() -> RequestScope | None:
    return _scope.get()


def begin_scope(scope: RequestScope) -> None:
    """Set the scope for this task, and for tasks that it creates from now on."""
    _scope.set(scope)


def carried_trace() -> pb.TraceContext | None:
    """Return the trace context of the current request, for processes that continue its work. None
    if the request is not traced."""
    scope = _scope.get()
    return None if scope is None or scope.span is None else scope.span.carried
