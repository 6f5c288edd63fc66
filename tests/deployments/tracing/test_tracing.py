"""A process's provider: who it says it is, what it samples, and how long its end may take."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deployments.names import Part
from deployments.observability import process as closing
from deployments.observability.process import ProcessName
from deployments.observability.tracing import provider as serve_spans
from deployments.observability.tracing import provider as tracing
from deployments.observability.tracing.provider import Tracing, begin_tracing

TARGET = ProcessName(role=Part.TARGET, id="target-x", cell=1)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Takes the place of whatever the environment asks for."""
    kept = InMemorySpanExporter()
    for module in (tracing, serve_spans):
        monkeypatch.setattr(module, "exporter_kinds", lambda signal: [lambda: kept])
    return kept


def traced(process: ProcessName = TARGET) -> Tracing:
    """A process that has made one span."""
    started = begin_tracing(process)
    assert started.tracer is not None
    started.tracer.start_span("a").end()
    return started


def test_without_the_standard_variables_nothing_is_traced() -> None:
    assert begin_tracing(TARGET).tracer is None


def test_a_process_is_an_instance_of_the_service(exporter: InMemorySpanExporter) -> None:
    asyncio.run(traced().close())
    (span,) = exporter.get_finished_spans()
    told = dict(span.resource.attributes)
    assert told["service.name"] == "specdec"
    assert told["service.instance.id"] == "target-x"
    assert (told["specdec.process"], told["specdec.cell"]) == ("target", 1)


def test_the_environment_names_the_service(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    asyncio.run(traced().close())
    (span,) = exporter.get_finished_spans()
    assert span.resource.attributes["service.name"] == "chat"
    assert span.resource.attributes["deployment.environment.name"] == "test"


def test_the_environment_chooses_the_sampler(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    asyncio.run(traced().close())
    assert exporter.get_finished_spans() == ()


class Hanging(SpanExporter):
    """A collector that takes connections and nothing else."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.released.wait()
        return SpanExportResult.FAILURE


def test_a_collector_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "CLOSE_S", 0.05)
    exporter = Hanging()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    started = Tracing(provider)
    assert started.tracer is not None
    started.tracer.start_span("a").end()
    began_s = time.monotonic()
    asyncio.run(started.close())
    took_s = time.monotonic() - began_s
    exporter.released.set()
    assert took_s < 20  # the exporter itself would never end


def test_serve_sends_its_spans_where_ours_go(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    for processor in serve_spans.span_processors():
        provider.add_span_processor(processor)
    provider.get_tracer("serve").start_span("proxy_http_request").end()
    provider.shutdown()
    assert [span.name for span in exporter.get_finished_spans()] == ["proxy_http_request"]
