"""One log line for every client request, written when its answer has ended. Never any text.

A request is recorded in its own task and in the tasks that this one creates. It is recorded however
it ends: served, refused, failed, or left by its client.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter
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
from deployments.observability.tracing.requests import RequestScope, begin_scope, current_scope
from specdec_core.config import SpecMethod

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
    generations: Sequence[Generation] = ()
    """The choices, once the request was checked."""
    method: str = SpecMethod.NONE
    """The drafting method that the request may use."""
    watches: list[tuple[Generation, RequestWatch]] = field(default_factory=list)
    """The choices that have begun, each with its times and its last chunk."""

    def fields(self) -> Fields:
        """Return the log line, without unknown values."""
        values: Values = {}
        if self.generations:
            values["request_id"] = self.generations[0].request.request_id
        scope = current_scope()
        if scope is not None and scope.context.is_valid:
            values["trace_id"] = format_trace_id(scope.context.trace_id)
        if self.key is not None:
            values["key"] = self.key or NO_KEY
        values |= {"protocol": self.protocol, "route": self.route}
        if self.generations:
            values |= self._tokens()
        values["duration_ms"] = round(1000 * (time.perf_counter() - self.began_s), 1)
        return Fields("request", values | self._end())

    def _tokens(self) -> Values:
        """Return the token counts, as in `usage`. Tokens that the client brought back count as
        output, too. Statistics cover only the choices that have ended."""
        counts = Counter(prompt_tokens=0, resumed_tokens=0, output_tokens=0)
        drafts, first_s = Counter[str](), math.inf
        for one in self.generations:
            counts["prompt_tokens"] += len(one.request.prompt_token_ids) if one.choice == 0 else 0
            counts["resumed_tokens"] += len(one.request.resume_token_ids)
        for one, watch in self.watches:
            first_s = first_s if watch.first_s is None else min(first_s, watch.first_s)
            last = watch.last
            counts["output_tokens"] += 0 if last is None else last.index + len(last.token_ids)
            if last is not None and last.stats is not None:
                counts["cached_tokens"] += last.stats.num_cached_tokens if one.choice == 0 else 0
                drafts["drafted_tokens"] += last.stats.num_drafted
                drafts["accepted_tokens"] += last.stats.num_accepted
        values: Values = {"choices": len(self.generations), **counts}
        num_drafted = drafts["drafted_tokens"]
        if drafts:
            values |= {"drafter": str(self.method if num_drafted else SpecMethod.NONE), **drafts}
        if num_drafted:
            values["acceptance_rate"] = round(drafts["accepted_tokens"] / num_drafted, 3)
        if first_s < math.inf:
            values["ttft_ms"] = round(1000 * (first_s - self.began_s), 1)
        return values

    def _end(self) -> Values:
        """Return how the answer ended, and its status."""
        chunks = [watch.last for _, watch in self.watches if watch.last is not None]
        reasons = [one.finish_reason.value for one in chunks if one.finish_reason is not None]
        values: Values = {}
        if self.error is not None:
            values |= {"finish_reason": "error", "error": type(self.error).__name__}
        elif not reasons or len(reasons) < len(self.generations):
            return {"finish_reason": "cancelled"}  # nobody was answered
        else:
            values["finish_reason"] = ",".join(sorted(set(reasons)))
        if self.protocol == "grpc":
            return values | {"grpc_status": self.status.code.name}
        return values | {"status": self.status.http}


_record: ContextVar[RequestRecord | None] = ContextVar("specdec_request_record", default=None)


def current_record() -> RequestRecord:
    """Return the record of this task's request, or an unused one without a request."""
    return _record.get() or RequestRecord()


@contextlib.contextmanager
def recorded(protocol: Protocol, route: str) -> Iterator[None]:
    """Record a request that is answered inside the context. An error that leaves the context is the
    answer. Code that answers an error inside it must report it to the record."""
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
