"""One log line for every client request, written when its answer has ended. Never any text.

A request is recorded in its own task and in the tasks that this one creates. It is recorded however
it ends: served, refused, failed, or left by its client.
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
from deployments.observability.tracing.request_span import TracedAnswer
from deployments.observability.tracing.requests import RequestScope, begin_scope, current_scope
from specdec_core.config import SpecMethod
from specdec_core.request import RequestStats

Protocol: TypeAlias = Literal["http", "grpc"]
Values: TypeAlias = dict[str, str | int | float]

logger = logging.getLogger(REQUESTS)

_OK = Status(200, grpc.StatusCode.OK, "", "")


@dataclass(eq=False, slots=True)
class RequestRecord:
    """The log data of one request, with all its choices."""

    protocol: Protocol = "http"
    route: str = ""
    key: str | None = None
    """Name of the caller's API key, empty if none is needed. None: no valid key was given."""
    error: Exception | None = None
    status: Status = _OK
    """Status of the answer. An error within an HTTP stream comes after the client has received
    200."""
    began_s: float = field(default_factory=time.perf_counter)
    _generations: Sequence[Generation] = ()
    _method: str = SpecMethod.NONE
    _watches: list[tuple[Generation, RequestWatch]] = field(default_factory=list)

    def begin(self, generations: Sequence[Generation], method: str) -> None:
        """Note that the request was checked. `method` is the drafting method that it may use."""
        self._generations, self._method = generations, method

    def watch(self, generation: Generation, watch: RequestWatch) -> None:
        """Note that a choice begins, which `watch` observes."""
        self._watches.append((generation, watch))

    def fields(self) -> Fields:
        """Return the log line, without unknown values."""
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
        """Return the token counts, as in `usage`.

        A prompt counts once. Tokens that the client brought back count as output, too. The
        scheduler reports statistics at the end of a choice, so they cover only the choices that
        have ended.
        """
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
            "drafter": str(self._method if num_drafted else SpecMethod.NONE),
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
    """Return the record of the request that this task works for, or an unused one without a
    request."""
    return _record.get() or RequestRecord()


@contextlib.contextmanager
def recorded(protocol: Protocol, route: str) -> Iterator[None]:
    """Record a request that is answered inside the context.

    Serve gives each request its own task (observability/tracing/requests.py). An error that leaves
    the context is the answer. Code that answers an error inside it must report it to the record.
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
