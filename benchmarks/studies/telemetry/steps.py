"""Microseconds of every telemetry hook, in turns, with nothing around it."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from statistics import median
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF
from opentelemetry.trace import Tracer

from deployments.ingress.generation_request import Generation
from deployments.ingress.output import OutputChunk, OutputOptions
from deployments.ingress.request_log import current_record, recorded
from deployments.names import Part
from deployments.observability.json_logs import JsonFormatter
from deployments.observability.logs import REQUESTS
from deployments.observability.metrics.request_times import RequestWatch
from deployments.observability.metrics.round_stages import LeaseStages
from deployments.observability.process import ProcessName
from deployments.observability.tracing.lease_spans import LeaseSpans
from deployments.observability.tracing.requests import Operation, RequestSpans, observed
from deployments.observability.tracing.scheduler_spans import SchedulerSpans
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import SpecMethod
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, Role, RowResult
from specdec_core.request import FinishReason, Request, RequestStats
from specdec_core.sampling_params import SamplingParams

_BATCH = 8
_CALLS = 200
_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
_SAMPLED = {"traceparent": f"{_PARENT}01"}
_NOT_SAMPLED = {"traceparent": f"{_PARENT}00"}
_STAGES = LeaseStages(0.001, 0.001, 0.001, 0.02)

Step = Callable[[], object]


def step_times(repeats: int) -> dict[str, float]:
    """Medians of the CPU time of one call, by what it does: others on the machine do not count."""
    steps = _request_steps() | _line_steps() | _lease_steps()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            began_s = time.thread_time()
            for _ in range(_CALLS):
                step()
            taken[name].append((time.thread_time() - began_s) / _CALLS * 1e6)
    return {name: round(median(each), 2) for name, each in taken.items()}


def _request_steps() -> dict[str, Step]:
    """An ingress's part of a request of twenty pieces."""
    off, on = RequestSpans(), RequestSpans(_tracer(), model_name="m")
    return {
        "request, its pieces alone": lambda: _drain(_pieces()),
        "request, no exporter": lambda: _request(off, _NOT_SAMPLED),
        "request, not sampled": lambda: _request(on, _NOT_SAMPLED),
        "request, sampled": lambda: _request(on, _SAMPLED),
    }


_GENERATION = Generation(
    request=Request(request_id="a", prompt_token_ids=(1,), params=SamplingParams(max_tokens=64)),
    stop=(),
    view=OutputOptions(),
)


_END = OutputChunk(
    index=63,
    token_ids=(1,),
    text="",
    text_offsets=(0,),
    finish_reason=FinishReason.STOP,
    stats=RequestStats(num_rounds=20, num_drafted=60, num_accepted=44, num_cached_tokens=16),
)


def _request(spans: RequestSpans, headers: dict[str, str]) -> None:
    with spans.of(Operation.CHAT, headers, {"http.route": "/v1/chat/completions"}):
        _drain(observed([_GENERATION], _pieces(), streams=True))


def _line_steps() -> dict[str, Step]:
    """A request's line, from its record's beginning to the end of the file."""
    formats = {
        "request's line, text": logging.Formatter(
            "%(levelname)s %(asctime)s %(name)s: %(message)s"
        ),
        "request's line, json": JsonFormatter(ProcessName(role=Part.INGRESS, id="ingress")),
    }
    lines = {name: partial(_line, _file(how)) for name, how in formats.items()}
    return {"request's line, off": partial(_line, None), **lines}


def _file(how: logging.Formatter) -> logging.Handler:
    """As Serve has one: it is flushed behind every line."""
    path = Path(tempfile.mkdtemp()) / "replica.log"
    handler = RotatingFileHandler(path, maxBytes=100 * 2**20, backupCount=5)
    handler.setFormatter(how)
    return handler


def _line(handler: logging.Handler | None) -> None:
    logger = logging.getLogger(REQUESTS)
    logger.handlers[:] = [handler] if handler else []
    logger.disabled, logger.propagate = handler is None, False
    logger.level = logging.INFO
    with recorded("http", "/v1/chat/completions"):
        record = current_record()
        record.key = "key"
        record.begin([_GENERATION], SpecMethod.DRAFT_MODEL)
        watch = RequestWatch(_GENERATION.request)
        record.watch(_GENERATION, watch)
        watch.hear(record.began_s + 0.04)
        watch.last = _END


async def _pieces() -> AsyncGenerator[tuple[int, OutputChunk]]:
    for index in range(20):
        reason = FinishReason.STOP if index == 19 else None
        piece = OutputChunk(
            index=index, token_ids=(1,), text="", text_offsets=(0,), finish_reason=reason
        )
        yield 0, piece


def _drain(pieces: AsyncGenerator[tuple[int, OutputChunk]]) -> None:
    """Nothing of them waits for anything, so that no loop is needed."""
    with suppress(StopAsyncIteration):
        while True:
            with suppress(StopIteration):
                pieces.asend(None).send(None)


def _lease_steps() -> dict[str, Step]:
    """A coordinator's and a replica's part of a lease of eight rows."""
    return {
        "lease, nothing traced": _lease_step(num_traced=0),
        "lease, 1 of 8 traced, not told": _lease_step(num_traced=1, skips=True),
        "lease, 1 of 8 traced and told": _lease_step(num_traced=1),
        "lease, 8 of 8 traced and told": _lease_step(num_traced=_BATCH),
        "replica, 1 row told": _replica_step(1),
        "replica, 8 rows told": _replica_step(_BATCH),
    }


def _lease_step(*, num_traced: int, skips: bool = False) -> Step:
    pool = SchedulerSpans(_tracer())
    for sequence_id in range(num_traced):
        pool.begin(_asked(str(sequence_id)), sequence_id, pb.TraceContext(**_SAMPLED))
    lease, result = _lease()

    def step() -> None:
        for traced in pool._by_sequence.values():
            traced.num_leases[Role.TARGET] = 17 if skips else 0
        pool.sent(lease, pb.GroupLease())
        pool.answered(Role.TARGET, result, _STAGES)

    return step


def _replica_step(num_told: int) -> Step:
    spans = LeaseSpans(_tracer())
    lease, result = _lease()
    parent = pb.TraceContext(**_SAMPLED)
    traces = [pb.RowTrace(row=place, parent=parent) for place in range(num_told)]
    return lambda: spans.tell(lease, result, traces, 0.02)


def _lease() -> tuple[GroupLease, GroupResult]:
    rows = tuple(LeaseRow(n, 40, 0, (7,), (1, 2, 3, 4), 5) for n in range(_BATCH))
    answers = tuple(
        RowResult(sequence_id=n, cached_len=43, tokens=(1, 2, 9), num_accepted=2)
        for n in range(_BATCH)
    )
    named: dict[str, Any] = {"lease_id": 1, "epoch": 1, "replica_id": "target-0"}
    lease = GroupLease(role=Role.TARGET, rows=rows, ttl_s=1.0, **named)
    return lease, GroupResult(rows=answers, seconds=0.02, **named)


def _asked(name: str = "a") -> Request:
    params = SamplingParams(max_tokens=64)
    return Request(request_id=name, prompt_token_ids=(1, 2, 3), params=params)


def _tracer() -> Tracer:
    """With what exporting takes of the thread that makes spans, and no exporter behind it."""
    provider = TracerProvider(DEFAULT_OFF, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    return provider.get_tracer("benchmark")


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS
