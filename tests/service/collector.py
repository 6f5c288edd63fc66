"""An OTLP collector in the test's own process: it keeps every span that a service sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc
from opentelemetry.proto.common.v1 import common_pb2


@dataclass(frozen=True)
class Span:
    """What a test asks of one."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    resource: Mapping[str, Any]
    text: str
    """All of it."""


class Collector(pb_grpc.TraceServiceServicer):
    """Spans as they came."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def Export(self, request: Any, context: Any) -> Any:
        with self._lock:
            self._spans += _spans_of(request)
        return pb.ExportTraceServiceResponse()

    def of(self, trace_id: str) -> list[Span]:
        with self._lock:
            return [span for span in self._spans if span.trace_id == trace_id]


@contextmanager
def collector() -> Iterator[tuple[Collector, str]]:
    """With the endpoint for OTEL_EXPORTER_OTLP_ENDPOINT."""
    kept = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    pb_grpc.add_TraceServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield kept, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None)


def _spans_of(request: Any) -> Iterator[Span]:
    for found in request.resource_spans:
        resource = _plain(found.resource.attributes)
        for scope in found.scope_spans:
            for span in scope.spans:
                yield Span(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes=_plain(span.attributes),
                    events=tuple((e.name, _plain(e.attributes)) for e in span.events),
                    resource=resource,
                    text=str(span),
                )


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
