"""What is known of the request that a task works for: its ids, for log lines, and its span.

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
    """Of one request of a client, whatever its choices."""

    context: SpanContext = INVALID_SPAN_CONTEXT
    """Of our span; where there is none, of the client's."""
    span: RequestSpan | None = None
    """None: the request is not traced."""
    request_id: str = ""
    """Empty until it was checked."""


_scope: ContextVar[RequestScope | None] = ContextVar("specdec_request_scope", default=None)


def current_scope() -> RequestScope | None:
    return _scope.get()


def begin_scope(scope: RequestScope) -> None:
    """For this task, and for tasks that it creates from now on."""
    _scope.set(scope)


def carried_trace() -> pb.TraceContext | None:
    """For whoever works on the current request elsewhere; None: it is not traced."""
    scope = _scope.get()
    return None if scope is None or scope.span is None else scope.span.carried
