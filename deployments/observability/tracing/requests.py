"""Incoming requests of an ingress: the traces to which they belong, and their spans."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TypeVar

from opentelemetry import propagate
from opentelemetry.context import Context, get_current
from opentelemetry.trace import SpanKind, Tracer, get_current_span
from opentelemetry.util.types import AttributeValue

from deployments.observability.scope import RequestScope, begin_scope, current_scope
from deployments.observability.tracing import names
from deployments.observability.tracing.request_span import RequestSpan, TracedAnswer, TracedRequest
from specdec.v1 import generation_pb2 as pb

T = TypeVar("T", bound=TracedAnswer)


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

    @contextlib.contextmanager
    def of(
        self,
        operation: Operation,
        carrier: Mapping[str, str],
        attributes: Mapping[str, str],
        *,
        id_prefix: str = "",
    ) -> Iterator[None]:
        """Begin a request that came with `carrier`, its headers or metadata.

        All work of this task from now on belongs to the request. Its span ends with the body, or
        with the last piece of its answer.
        """
        parent = _parent_in(carrier)
        scope = RequestScope(get_current_span(parent).get_span_context())
        begin_scope(scope)
        span = self._begin(operation, parent, attributes, id_prefix)
        if span is None:
            yield
            return
        scope.span, scope.context = span, span.context
        try:
            yield
        except Exception as error:
            span.fail(error)
            raise
        finally:
            if not span.is_observed:
                span.end()

    def _begin(
        self,
        operation: Operation,
        parent: Context,
        attributes: Mapping[str, str],
        id_prefix: str,
    ) -> RequestSpan | None:
        if self._tracer is None:
            return None
        span = self._tracer.start_span(
            f"{operation} {self._model_name}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes={**self._own, names.OPERATION: operation.value, **attributes},
        )
        return RequestSpan(span, id_prefix=id_prefix) if span.is_recording() else None


def observed(
    generations: Sequence[TracedRequest],
    pieces: AsyncGenerator[tuple[int, T]],
    *,
    streams: bool,
) -> AsyncGenerator[tuple[int, T]]:
    """Return `pieces` of the current request. If the request has a span, the span records them."""
    scope = current_scope()
    if scope is None:
        return pieces
    scope.request_id = generations[0].request.request_id
    if scope.span is None:
        return pieces
    return scope.span.observed(generations, pieces, streams=streams)


def _parent_in(carrier: Mapping[str, str]) -> Context:
    """Return Serve's span if Serve traces this request, and otherwise the client's span. Serve's
    span is part of the client's trace."""
    if get_current_span().get_span_context().is_valid:
        return get_current()
    return propagate.extract(carrier, Context())


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
