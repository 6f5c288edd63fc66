"""Span of one request at its ingress, by the GenAI conventions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol, TypeVar

from opentelemetry.trace import Span, StatusCode
from opentelemetry.util.types import AttributeValue

from deployments.error_status import status_of
from deployments.observability.tracing import names
from deployments.observability.tracing.carried import context_to_pb
from specdec_core.request import FinishReason, Request, RequestStats


class TracedRequest(Protocol):
    """One choice of a request."""

    @property
    def request(self) -> Request: ...

    @property
    def choice(self) -> int:
        """Number of the choice among those of its prompt."""
        ...


class TracedAnswer(Protocol):
    """New part of an answer."""

    @property
    def index(self) -> int:
        """Position of the first of `token_ids`."""
        ...

    @property
    def token_ids(self) -> tuple[int, ...]: ...

    @property
    def finish_reason(self) -> FinishReason | None: ...

    @property
    def stats(self) -> RequestStats | None: ...


Attributes = dict[str, AttributeValue]


def request_attributes(generations: Sequence[TracedRequest], *, streams: bool) -> Attributes:
    """Return the attributes of a request with all its choices.

    Top-k and the penalties are left out at their neutral value.
    """
    request = generations[0].request
    params = request.params
    attributes: Attributes = {
        names.REQUEST_ID: request.request_id,
        names.REQUEST_STREAM: streams,
        names.REQUEST_MAX_TOKENS: params.max_tokens,
        names.REQUEST_TEMPERATURE: params.temperature,
        names.REQUEST_TOP_P: params.top_p,
        names.REQUEST_SEED: params.seed,
    }
    unusual = {
        names.REQUEST_TOP_K: params.top_k,
        names.REQUEST_FREQUENCY_PENALTY: params.frequency_penalty,
        names.REQUEST_PRESENCE_PENALTY: params.presence_penalty,
    }
    attributes |= {name: value for name, value in unusual.items() if value}
    if request.num_draft_tokens is not None or not request.speculation_enabled:
        attributes[names.NUM_SPEC_TOKENS] = request.num_draft_tokens or 0
    if request.spec_method is not None:
        attributes[names.SPEC_METHOD] = str(request.spec_method)
    prompts = [one for one in generations if one.choice == 0]
    if len(generations) > len(prompts):
        attributes[names.REQUEST_CHOICE_COUNT] = len(generations) // len(prompts)
    num_prompt = sum(len(one.request.prompt_token_ids) for one in prompts)
    return attributes | names.each(names.INPUT_TOKENS, num_prompt)


def speculation_attributes(stats: Sequence[RequestStats]) -> Attributes:
    """Return sums over the choices, and the maximum of their queue times."""
    return {
        names.NUM_ROUNDS: sum(one.num_rounds for one in stats),
        names.NUM_DRAFTED: sum(one.num_drafted for one in stats),
        names.NUM_ACCEPTED: sum(one.num_accepted for one in stats),
        names.NUM_PREEMPTIONS: sum(one.num_preemptions for one in stats),
        names.QUEUE_S: max(one.queue_s for one in stats),
    }


T = TypeVar("T", bound=TracedAnswer)


class RequestSpan:
    """Span from the request's arrival to the last part of its answer."""

    def __init__(
        self, span: Span, *, id_prefix: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`id_prefix` precedes the request's ID in the answer's ID."""
        self.carried = context_to_pb(span)
        self.context = span.get_span_context()
        self.is_observed = False
        """Whether `observed` ends the span after the last chunk of the answer."""
        self._span = span
        self._id_prefix = id_prefix
        self._clock = clock
        self._began_s = clock()
        self._has_first = False
        self._has_failed = False
        self._num_tokens = 0
        self._reasons: dict[int, FinishReason] = {}
        self._stats: list[RequestStats] = []

    async def observed(
        self,
        generations: Sequence[TracedRequest],
        chunks: AsyncGenerator[tuple[int, T]],
        *,
        streams: bool,
    ) -> AsyncGenerator[tuple[int, T]]:
        """Yield the same chunks. The span ends after the last one, or when the caller stops
        reading."""
        self.is_observed = True
        self._set_request(generations, streams=streams)
        try:
            async with contextlib.aclosing(chunks):
                async for choice, chunk in chunks:
                    self._note(choice, chunk)
                    yield choice, chunk
        except Exception as error:
            self.fail(error)
            raise
        finally:
            self._set_response(num_choices=len(generations))
            self._span.end()

    def fail(self, error: Exception) -> None:
        """Record that the request ends with `error`. A client's mistake is not a failure of the
        service."""
        if not self._span.is_recording():  # already ended by `observed`
            return
        self._has_failed = True
        kind = type(error).__name__
        self._span.set_attribute(names.ERROR_TYPE, kind)
        if status_of(error).http >= 500:
            self._span.set_status(StatusCode.ERROR, kind)

    def end(self) -> None:
        """End the span of a request without any chunks."""
        self._span.end()

    def _set_request(self, generations: Sequence[TracedRequest], *, streams: bool) -> None:
        response_id = self._id_prefix + generations[0].request.request_id
        self._span.set_attribute(names.RESPONSE_ID, response_id)
        self._span.set_attributes(request_attributes(generations, streams=streams))

    def _note(self, choice: int, chunk: TracedAnswer) -> None:
        if chunk.token_ids and not self._has_first:
            self._has_first = True
            waited_s = self._clock() - self._began_s
            self._span.set_attributes(names.each(names.TIME_TO_FIRST_TOKEN, waited_s))
        self._num_tokens += len(chunk.token_ids)
        if chunk.finish_reason is not None:
            self._reasons[choice] = chunk.finish_reason
            if chunk.stats is not None:
                self._stats.append(chunk.stats)

    def _set_response(self, *, num_choices: int) -> None:
        self._span.set_attributes(names.each(names.OUTPUT_TOKENS, self._num_tokens))
        reasons = [str(self._reasons[choice]) for choice in sorted(self._reasons)]
        self._span.set_attribute(names.FINISH_REASONS, reasons)
        if self._stats:
            self._span.set_attributes(speculation_attributes(self._stats))
        if len(reasons) < num_choices and not self._has_failed:
            self._span.set_attribute(names.ERROR_TYPE, names.CANCELLED)
