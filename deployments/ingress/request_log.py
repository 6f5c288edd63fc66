"""One line of the log for every request of a client, when its answer has ended. Never any text.

A request is recorded in its own task and those that it creates, however it ends: served, refused,
failed, or left by its client.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import grpc
from opentelemetry.trace import format_trace_id

from deployments.error_status import Status, status_of
from deployments.ingress.generation_request import Generation
from deployments.names import NO_KEY
from deployments.observability.json_logs import Fields
from deployments.observability.logs import REQUESTS
from deployments.observability.metrics.request_times import RequestWatch
from deployments.observability.scope import RequestScope, begin_scope, current_scope
from deployments.observability.tracing.span_protocols import TracedAnswer
from specdec_core.config import SpecMethod
from specdec_core.request import RequestStats

Protocol: TypeAlias = Literal["http", "grpc"]
Values: TypeAlias = dict[str, str | int | float]

logger = logging.getLogger(REQUESTS)

_OK = Status(200, grpc.StatusCode.OK, "", "")


@dataclass(eq=False, slots=True)
class RequestRecord:
    """What an ingress knows of one request, whatever its choices."""

    protocol: Protocol = "http"
    route: str = ""
    key: str | None = None
    """Name of the caller's API key, empty where none is needed. None: no valid one was given."""
    error: Exception | None = None
    status: Status = _OK
    """What the client was answered; an error that a stream of HTTP tells comes after its 200."""
    began_s: float = field(default_factory=time.perf_counter)
    _generations: Sequence[Generation] = ()
    _method: SpecMethod = SpecMethod.NONE
    _watches: list[tuple[Generation, RequestWatch]] = field(default_factory=list)

    def begin(self, generations: Sequence[Generation], method: SpecMethod) -> None:
        """It was checked; `method` is who may draft for it."""
        self._generations, self._method = generations, method

    def watch(self, generation: Generation, watch: RequestWatch) -> None:
        """One of its choices begins, and `watch` sees it."""
        self._watches.append((generation, watch))

    def fields(self) -> Fields:
        """The line; what is not known is left out."""
        told = [
            (generation, watch.last)
            for generation, watch in self._watches
            if watch.last is not None
        ]
        values = self._who()
        if self._generations:
            values |= self._tokens(told)
        values["duration_ms"] = _ms(time.perf_counter() - self.began_s)
        return Fields("request", values | self._end(told))

    def _who(self) -> Values:
        values: Values = {}
        if self._generations:
            values["request_id"] = self._generations[0].request.request_id
        scope = current_scope()
        if scope is not None and scope.context.is_valid:
            values["trace_id"] = format_trace_id(scope.context.trace_id)
        if self.key is not None:
            values["key"] = self.key or NO_KEY
        return values | {"protocol": self.protocol, "route": self.route}

    def _tokens(self, told: Sequence[tuple[Generation, TracedAnswer]]) -> Values:
        """As in `usage`: a prompt counts once, and tokens that were brought back are output, too.
        What the pool says at the end of a choice is known of those that have ended."""
        asked = [one.request for one in self._generations]
        prompts = [one.request.prompt_token_ids for one in self._generations if one.choice == 0]
        values: Values = {
            "choices": len(asked),
            "prompt_tokens": sum(map(len, prompts)),
            "resumed_tokens": sum(len(one.resume_token_ids) for one in asked),
            "output_tokens": sum(last.index + len(last.token_ids) for _, last in told),
        }
        stats = [(one.choice, last.stats) for one, last in told if last.stats is not None]
        if stats:
            values["cached_tokens"] = sum(
                each.num_cached_tokens for choice, each in stats if choice == 0
            )
            values |= self._speculation([each for _, each in stats])
        first_s = [watch.first_s for _, watch in self._watches if watch.first_s is not None]
        if first_s:
            values["ttft_ms"] = _ms(min(first_s) - self.began_s)
        return values

    def _speculation(self, stats: Sequence[RequestStats]) -> Values:
        num_drafted = sum(each.num_drafted for each in stats)
        num_accepted = sum(each.num_accepted for each in stats)
        values: Values = {
            "drafter": (self._method if num_drafted else SpecMethod.NONE).value,
            "drafted_tokens": num_drafted,
            "accepted_tokens": num_accepted,
        }
        if num_drafted:
            values["acceptance_rate"] = round(num_accepted / num_drafted, 3)
        return values

    def _end(self, told: Sequence[tuple[Generation, TracedAnswer]]) -> Values:
        reasons = [last.finish_reason.value for _, last in told if last.finish_reason is not None]
        values: Values = {}
        if self.error is not None:
            values |= {"finish_reason": "error", "error": type(self.error).__name__}
        elif not reasons or len(reasons) < len(self._generations):
            return {"finish_reason": "cancelled"}  # nobody was answered
        else:
            values["finish_reason"] = ",".join(sorted(set(reasons)))
        if self.protocol == "grpc":
            return values | {"grpc_status": self.status.code.name}
        return values | {"status": self.status.http}


_record: ContextVar[RequestRecord | None] = ContextVar("specdec_request_record", default=None)


def current_record() -> RequestRecord:
    """That of the request that this task works for; one that nobody reads where there is none."""
    return _record.get() or RequestRecord()


@contextlib.contextmanager
def recorded(protocol: Protocol, route: str) -> Iterator[None]:
    """A request that is answered inside. Serve gives each a task of its own (telemetry/scope.py).

    An error that leaves it is the answer; whoever answers one inside says so to the record.
    """
    record = RequestRecord(protocol, route)
    _record.set(record)
    begin_scope(RequestScope())
    try:
        yield
    except Exception as error:
        record.error, record.status = error, status_of(error)
        raise
    finally:
        if logger.isEnabledFor(logging.INFO):
            logger.info(record.fields())


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
