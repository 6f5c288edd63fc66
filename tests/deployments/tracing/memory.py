"""Spans that a test keeps, and a client's trace to be part of."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, Sampler
from opentelemetry.trace import Tracer

TRACE_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736
CLIENT_ID = 0x00F067AA0BA902B7
TRACEPARENT = f"00-{TRACE_ID:032x}-{CLIENT_ID:016x}-01"
NOT_SAMPLED = f"00-{TRACE_ID:032x}-{CLIENT_ID:016x}-00"
TRACESTATE = "vendor=opaque"
HEADERS = {"traceparent": TRACEPARENT, "tracestate": TRACESTATE}


@dataclass
class Spans:
    """What ended, in the order of its end. By default a trace begins with its client or not at
    all."""

    sampler: Sampler = DEFAULT_OFF
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    @property
    def tracer(self) -> Tracer:
        provider = TracerProvider(self.sampler, Resource({}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        return provider.get_tracer("test")

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_id_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def told(span: ReadableSpan) -> str:
    """Everything that leaves with it, to look for what must not."""
    return span.to_json()
