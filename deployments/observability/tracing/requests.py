"""Incoming requests of an ingress: their scope, the traces to which they belong, and their spans.

Serve gives every request a task of its own, so a scope is begun and never left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from opentelemetry import propagate
from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    SpanContext,
    SpanKind,
    Tracer,
    get_current_span,
)
from opentelemetry.util.types import AttributeValue

from deployments.observability.tracing import names
from deployments.observability.tracing.request_span import RequestSpan, TracedAnswer, TracedRequest
from specdec.v1 import coordination_pb2
from specdec.v1 import generation_pb2 as pb

T = TypeVar("T", bound=TracedAnswer)


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


def carried_trace() -> coordination_pb2.TraceContext | None:
    """Return the trace context of the current request, for processes that continue its work. None
    if the request is not traced."""
    scope = _scope.get()
    return None if scope is None or scope.span is None else scope.span.carried


class Operation(StrEnum):
    """Operation names of the GenAI conventions."""

    CHAT = "chat"
    TEXT = "text_completion"


class RequestSpans:
    """Begins the spans of requests to one model. Without a tracer there are none."""

    def __init__(
        self,
        tracer: Tracer | None = None,
        *,
        model_name: str = "",
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        """`attributes` are set on every request, unless the request has its own value."""
        self._tracer = tracer
        self._model_name = model_name
        self._own: dict[str, AttributeValue] = {
            **names.each(names.PROVIDER_NAMES, names.PROVIDER),
            names.REQUEST_MODEL: model_name,
            names.RESPONSE_MODEL: model_name,
            **(attributes or {}),
        }

    def of(
        self,
        operation: Operation,
        carrier: Mapping[str, str],
        attributes: Mapping[str, str],
        *,
        id_prefix: str = "",
    ) -> AbstractContextManager[None]:
        """Begin a request that came with `carrier`, its headers or metadata.

        All work of this task from now on belongs to the request. Its span ends with the context,
        or with the last chunk of its answer.
        """
        # Serve's span, if Serve traces this request, is part of the client's trace.
        is_traced = get_current_span().get_span_context().is_valid
        parent = get_current() if is_traced else propagate.extract(carrier, Context())
        scope = RequestScope(get_current_span(parent).get_span_context())
        _scope.set(scope)
        if self._tracer is None:
            return nullcontext()
        about = {names.OPERATION: operation.value, **attributes}
        return self._traced(self._tracer, scope, parent, about, id_prefix)

    @contextmanager
    def _traced(
        self,
        tracer: Tracer,
        scope: RequestScope,
        parent: Context,
        attributes: Mapping[str, str],
        id_prefix: str,
    ) -> Iterator[None]:
        """Begin a span and put it into the scope, unless the tracer does not record it."""
        started = tracer.start_span(
            f"{attributes[names.OPERATION]} {self._model_name}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes={**self._own, **attributes},
        )
        if not started.is_recording():
            yield
            return
        span = RequestSpan(started, id_prefix=id_prefix)
        scope.span, scope.context = span, span.context
        try:
            yield
        except Exception as error:
            span.fail(error)
            raise
        finally:
            if not span.is_observed:
                span.end()


def observed(
    generations: Sequence[TracedRequest],
    chunks: AsyncGenerator[tuple[int, T]],
    *,
    streams: bool,
) -> AsyncGenerator[tuple[int, T]]:
    """Return `chunks` of the current request. If the request has a span, the span records them."""
    scope = _scope.get()
    if scope is not None:
        scope.request_id = generations[0].request.request_id
        if scope.span is not None:
            return scope.span.observed(generations, chunks, streams=streams)
    return chunks


_SERVICE = pb.DESCRIPTOR.services_by_name["GenerationService"].full_name


def traced_call(
    spans: RequestSpans,
    method: str,
    message: pb.GenerateRequest,
    metadata: Iterable[tuple[str, str]],
) -> AbstractContextManager[None]:
    """Return a context manager for the span of one gRPC call."""
    is_chat = message.WhichOneof("input") == "chat"
    attributes = {
        names.RPC_SYSTEM: "grpc",
        names.RPC_SERVICE: _SERVICE,
        names.RPC_METHOD: method,
    }
    carrier = {key.lower(): value for key, value in metadata}
    return spans.of(Operation.CHAT if is_chat else Operation.TEXT, carrier, attributes)
