"""Conversions between core and wire, in pairs: requests and token events."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_origin

from deployments.errors import Failure, FailureKind
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent
from specdec_core.sampling_params import SAMPLING_FIELDS, SamplingParams
from specdec_core.speculation.registry import check_method

FINISH_REASONS = {
    FinishReason.STOP: public_pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: public_pb.FINISH_REASON_LENGTH,
    FinishReason.ABORT: public_pb.FINISH_REASON_ABORT,
    FinishReason.ERROR: public_pb.FINISH_REASON_ERROR,
}
_FINISH_REASONS_BACK = {value: reason for reason, value in FINISH_REASONS.items()}
_FAILURE_KINDS = {
    FailureKind.INVALID_REQUEST: pb.FAILURE_KIND_INVALID_REQUEST,
    FailureKind.QUEUE_FULL: pb.FAILURE_KIND_QUEUE_FULL,
    FailureKind.CLIENT_LIMIT: pb.FAILURE_KIND_CLIENT_LIMIT,
    FailureKind.ROW_FAILED: pb.FAILURE_KIND_ROW_FAILED,
    FailureKind.POOL_FAILED: pb.FAILURE_KIND_POOL_FAILED,
    FailureKind.DEADLINE: pb.FAILURE_KIND_DEADLINE,
}
_FAILURE_KINDS_BACK = {value: kind for kind, value in _FAILURE_KINDS.items()}


@lru_cache(maxsize=1024)
def _ints(number: int) -> struct.Struct:
    """Return a little-endian int32 format.

    Most messages have a few of them. Looking one up takes a third of the time of making it.
    """
    return struct.Struct(f"<{number}i")


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return IDs as little-endian int32."""
    return _ints(len(ids)).pack(*ids)


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    return _ints(len(packed) // 4).unpack(packed)


_GRAMMAR_FIELDS = {
    GrammarKind.JSON_SCHEMA: "json_schema",
    GrammarKind.REGEX: "regex",
    GrammarKind.LARK: "grammar",
}
"""Only these kinds are used between ingress and replicas."""
_GRAMMAR_KINDS = {name: kind for kind, name in _GRAMMAR_FIELDS.items()}
_NUMBERS = [
    (field.name, field.proto_name, NoneType in get_args(field.type), get_origin(field.type))
    for field in SAMPLING_FIELDS
    if field.name not in ("logit_bias", "bad_words", "grammar")
]
"""Name, name on the wire, whether it may be None, and `tuple` for several numbers. The parameters
that are left out have a message or map of their own on the wire."""


def sampling_to_pb(params: SamplingParams) -> public_pb.SamplingParams:
    numbers: dict[str, Any] = {to: getattr(params, name) for name, to, _, _ in _NUMBERS}
    message = public_pb.SamplingParams(**numbers, logit_bias=dict(params.logit_bias))
    for word in params.bad_words:
        message.bad_word_ids.add(ids=word)
    if params.grammar is not None:
        field = _GRAMMAR_FIELDS[params.grammar.kind]
        setattr(message.structured_output, field, params.grammar.source)
    return message


def sampling_from_pb(message: public_pb.SamplingParams) -> SamplingParams:
    """Return the parameters. Every field of `message` is set, because the ingress sets the
    defaults."""
    values: dict[str, Any] = {"logit_bias": tuple(sorted(message.logit_bias.items()))}
    for name, proto_name, may_be_none, origin in _NUMBERS:
        if not may_be_none or message.HasField(proto_name):
            value = getattr(message, proto_name)
            values[name] = tuple(value) if origin is tuple else value
    if message.bad_word_ids:
        values["bad_words"] = tuple(tuple(word.ids) for word in message.bad_word_ids)
    if message.HasField("structured_output"):
        grammar = message.structured_output
        kind = _GRAMMAR_KINDS[grammar.WhichOneof("kind")]
        values["grammar"] = GrammarSpec(kind, getattr(grammar, _GRAMMAR_FIELDS[kind]))
    return SamplingParams(**values)


def logprobs_to_pb(logprobs: Sequence[TokenLogprobs]) -> public_pb.Logprobs:
    """Return one entry per token, with the same number of most probable IDs in each.

    float32 values are kept.
    """
    return public_pb.Logprobs(
        logprobs=[entry.logprob for entry in logprobs],
        top_ids=[token_id for entry in logprobs for token_id, _ in entry.top],
        top_logprobs=[logprob for entry in logprobs for _, logprob in entry.top],
    )


def logprobs_from_pb(message: public_pb.Logprobs) -> tuple[TokenLogprobs, ...]:
    pairs = list(zip(message.top_ids, message.top_logprobs, strict=True))
    share = len(pairs) // len(message.logprobs) if message.logprobs else 0
    return tuple(
        TokenLogprobs(logprob, tuple(pairs[i * share : (i + 1) * share]))
        for i, logprob in enumerate(message.logprobs)
    )


def submit_to_pb(
    request: Request,
    *,
    resume: bool,
    trace: pb.TraceContext | None = None,
    acknowledge: bool = False,
) -> pb.Submit:
    return pb.Submit(
        request_id=request.request_id,
        prompt_token_ids=pack_ids(request.prompt_token_ids),
        emitted_token_ids=pack_ids(request.emitted_token_ids),
        resume_token_ids=pack_ids(request.resume_token_ids),
        resume=resume,
        sampling=sampling_to_pb(request.params),
        end_token_ids=pack_ids(sorted(request.end_token_ids)),
        speculative=public_pb.Speculative(
            enabled=request.speculation_enabled,
            num_speculative_tokens=request.num_draft_tokens,
            method=request.spec_method,
        ),
        priority=request.priority,
        pinned_fingerprint=request.pinned_fingerprint,
        client=request.client,
        timeout_s=request.timeout_s,
        cache_salt=request.cache_salt,
        trace=trace,
        acknowledge=acknowledge,
    )


def drafting_from_pb(message: public_pb.Speculative) -> tuple[int | None, str | None]:
    """Return K and the method's name, or None for what is not set."""
    k = message.num_speculative_tokens if message.HasField("num_speculative_tokens") else None
    return k, message.method if message.HasField("method") else None


def submit_from_pb(message: pb.Submit) -> Request:
    """Return the request. Raises InvalidRequestError for values that no request may have."""
    num_draft_tokens, method = drafting_from_pb(message.speculative)
    check_method(method)
    return Request(
        request_id=message.request_id,
        prompt_token_ids=unpack_ids(message.prompt_token_ids),
        params=sampling_from_pb(message.sampling),
        end_token_ids=frozenset(unpack_ids(message.end_token_ids)),
        emitted_token_ids=unpack_ids(message.emitted_token_ids),
        resume_token_ids=unpack_ids(message.resume_token_ids),
        speculation_enabled=message.speculative.enabled,
        num_draft_tokens=num_draft_tokens,
        spec_method=method,
        priority=message.priority,
        pinned_fingerprint=message.pinned_fingerprint,
        client=message.client,
        timeout_s=message.timeout_s if message.HasField("timeout_s") else None,
        cache_salt=message.cache_salt,
    )


def stats_to_pb(stats: RequestStats) -> public_pb.SpeculationStats:
    drafted, accepted = zip(*stats.steps, strict=True) if stats.steps else ((), ())
    return public_pb.SpeculationStats(
        num_rounds=stats.num_rounds,
        num_spec_steps=stats.num_proposed_rounds,
        num_draft_tokens=stats.num_drafted,
        num_accepted_draft_tokens=stats.num_accepted,
        acceptance_histogram=stats.acceptance_histogram,
        per_step_drafted=drafted,
        per_step_accepted=accepted,
        mean_acceptance_length=stats.mean_acceptance_length,
        draft_acceptance_rate=stats.num_accepted / stats.num_drafted if stats.num_drafted else 0.0,
        queue_time_ms=stats.queue_s * 1000,
        num_preemptions=stats.num_preemptions,
    )


def _stats_from_pb(event: pb.TokenEvent) -> RequestStats:
    message = event.stats
    return RequestStats(
        num_rounds=message.num_rounds,
        num_drafted=message.num_draft_tokens,
        num_accepted=message.num_accepted_draft_tokens,
        steps=tuple(zip(message.per_step_drafted, message.per_step_accepted, strict=True)),
        queue_s=message.queue_time_ms / 1000,
        num_preemptions=message.num_preemptions,
        num_cached_tokens=event.num_cached_tokens,
    )


def failure_to_pb(failure: Failure) -> pb.Failure:
    return pb.Failure(
        kind=_FAILURE_KINDS[failure.kind],
        message=failure.message,
        retry_after_s=failure.retry_after_s,
        num_queued=failure.num_queued,
        max_queued=failure.max_queued,
        param=failure.param,
        code=failure.code,
    )


def failure_from_pb(message: pb.Failure) -> Failure:
    return Failure(
        kind=_FAILURE_KINDS_BACK.get(message.kind, FailureKind.POOL_FAILED),
        message=message.message,
        retry_after_s=message.retry_after_s,
        num_queued=message.num_queued,
        max_queued=message.max_queued,
        param=message.param,
        code=message.code,
    )


def write_event(message: pb.TokenEvent, event: TokenEvent, failure: Failure | None) -> None:
    """Write an event into an empty message that is already in place for sending.

    A message that is put into another one is copied through its bytes. This took half of the time
    of 8 events.
    """
    message.request_id = event.request_id
    message.index = event.index
    message.token_ids = pack_ids(event.token_ids)
    if event.pinned_fingerprint:
        message.pinned_fingerprint = event.pinned_fingerprint
    if event.logprobs or event.prompt_logprobs:
        _write_logprobs(message, event)
    if event.finish_reason is not None:
        message.finish_reason = FINISH_REASONS[event.finish_reason]
    if event.stats is not None:
        message.stats.CopyFrom(stats_to_pb(event.stats))
        message.num_cached_tokens = event.stats.num_cached_tokens
    if failure is not None:
        message.failure.CopyFrom(failure_to_pb(failure))


def _write_logprobs(message: pb.TokenEvent, event: TokenEvent) -> None:
    if event.logprobs:
        message.logprobs.CopyFrom(logprobs_to_pb(event.logprobs))
    if event.prompt_logprobs:
        message.prompt_logprobs.CopyFrom(logprobs_to_pb(event.prompt_logprobs))


def event_from_pb(message: pb.TokenEvent) -> tuple[TokenEvent, Failure | None]:
    failure = failure_from_pb(message.failure) if message.HasField("failure") else None
    # An unset field is not read, because that makes an empty message first: 4 us of 6.5 for the
    # usual event.
    has_logprobs, has_scores = message.HasField("logprobs"), message.HasField("prompt_logprobs")
    event = TokenEvent(
        request_id=message.request_id,
        index=message.index,
        token_ids=unpack_ids(message.token_ids),
        finish_reason=_FINISH_REASONS_BACK.get(message.finish_reason),
        stats=_stats_from_pb(message) if message.HasField("stats") else None,
        error=failure.message if failure else None,
        logprobs=logprobs_from_pb(message.logprobs) if has_logprobs else (),
        prompt_logprobs=logprobs_from_pb(message.prompt_logprobs) if has_scores else (),
        pinned_fingerprint=message.pinned_fingerprint,
    )
    return event, failure
