"""GenerationService's RPCs over a deployments.ingress.generation.GenerationService. No Ray.

An RPC answers errors with a status code and a message; an exception that left it without them would
show the client a stack trace.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from deployments.api.grpc.chat import chat_of
from deployments.api.grpc.requests import request_of
from deployments.error_status import public_error, status_of
from deployments.errors import BodyTooLargeError, RequestFailedError
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import Generation
from deployments.ingress.output import OutputChunk, ReadAnswer, joined
from deployments.ingress.request_log import current_record, recorded
from deployments.observability.metrics.visibility import visible
from deployments.observability.tracing.requests import traced_call
from deployments.version import package_version
from deployments.wire.request_codec import FINISH_REASONS, logprobs_to_pb, stats_to_pb
from specdec.v1 import generation_pb2 as pb
from specdec_core.errors import InvalidRequestError, TryAgainError
from specdec_core.request import RequestStats

logger = logging.getLogger(__name__)

_STATUS_DETAILS = "grpc-status-details-bin"
_ERROR_DOMAIN = "specdec"


class CallContext(Protocol):
    """The part of Serve's gRPC context that is used."""

    def peer(self) -> str: ...

    def invocation_metadata(self) -> list[tuple[str, str]]: ...

    def set_code(self, code: grpc.StatusCode) -> None: ...

    def set_details(self, details: str) -> None: ...

    def set_trailing_metadata(self, trailing_metadata: Any) -> None: ...


class GrpcApi:
    """One method per RPC."""

    def __init__(self, service: GenerationService, access: Access, *, max_body_bytes: int) -> None:
        self._service = service
        self._access = access
        self._max_body_bytes = max_body_bytes

    async def generate(
        self, message: pb.GenerateRequest, context: CallContext
    ) -> AsyncIterator[pb.GenerateResponse]:
        try:
            with recorded("grpc", "Generate"):
                client, metadata = self._admit(message, context), context.invocation_metadata()
                with traced_call(self._service.spans, "Generate", message, metadata):
                    generations = await self._prepare(message, client)
                    answers = [ReadAnswer(one.reading) for one in generations]
                    outputs = self._service.run_choices(generations, streams=True)
                    async with contextlib.aclosing(outputs) as chunks:
                        async for choice, chunk in chunks:
                            with self._service.pool.times.respond:
                                answer = self._response(generations[choice], answers[choice], chunk)
                                answer.choice = choice
                            yield answer
        except Exception as error:
            _refuse(context, error)
            # Serve sends a code and trailers only with a message; the proxy drops this one
            # (proxy/grpc_guard.py).
            yield pb.GenerateResponse()

    async def generate_once(
        self, message: pb.GenerateRequest, context: CallContext
    ) -> pb.GenerateResponse:
        with _answering(context), recorded("grpc", "GenerateOnce"):
            if message.n > 1:
                raise InvalidRequestError(
                    f"n={message.n}: GenerateOnce answers with one output, use Generate",
                    param="n",
                )
            client = self._admit(message, context)
            metadata = context.invocation_metadata()
            with traced_call(self._service.spans, "GenerateOnce", message, metadata):
                (generation,) = await self._prepare(message, client)
                outputs = self._service.run_choices([generation])
                chunks = [chunk async for _, chunk in outputs]
            whole = joined(chunks)
            with self._service.pool.times.respond:
                return self._response(generation, ReadAnswer(generation.reading), whole)
        return pb.GenerateResponse()

    async def abort(self, message: pb.AbortRequest, context: CallContext) -> pb.AbortResponse:
        with _answering(context):
            self._admit(message, context)
            if not message.request_id:
                raise InvalidRequestError(
                    "request_id is empty", param="request_id", code="missing_required_parameter"
                )
            return pb.AbortResponse(aborted=await self._service.pool.abort(message.request_id))
        return pb.AbortResponse()

    async def tokenize(
        self, message: pb.TokenizeRequest, context: CallContext
    ) -> pb.TokenizeResponse:
        with _answering(context):
            self._admit(message, context)
            return pb.TokenizeResponse(token_ids=await self._service.encode(message.text))
        return pb.TokenizeResponse()

    async def detokenize(
        self, message: pb.DetokenizeRequest, context: CallContext
    ) -> pb.DetokenizeResponse:
        with _answering(context):
            self._admit(message, context)
            text = await self._service.decode_all(message.token_ids, "token_ids")
            return pb.DetokenizeResponse(text=text)
        return pb.DetokenizeResponse()

    async def list_models(
        self, message: pb.ListModelsRequest, context: CallContext
    ) -> pb.ListModelsResponse:
        with _answering(context):
            self._admit(message, context)
            formats = self._service.text.formats
            model = pb.Model(
                id=self._service.model_name,
                max_model_len=self._service.max_model_len,
                tool_call_parser=formats.calls.name,
                reasoning_parser=formats.reasoning.name,
            )
            return pb.ListModelsResponse(models=[model])
        return pb.ListModelsResponse()

    async def pool_status(
        self, message: pb.PoolStatusRequest, context: CallContext
    ) -> pb.PoolStatusResponse:
        with _answering(context):
            authorization = _authorization(context)
            if self._access.is_monitor(authorization):
                self._access.check_peer(context.peer())
            else:
                self._admit(message, context)
            names = self._access.visible_names(authorization)
            return visible(await self._service.pool.pool_status(), names)
        return pb.PoolStatusResponse()

    async def health(self, message: pb.HealthRequest, context: CallContext) -> pb.HealthResponse:
        with _answering(context):
            self._access.check_peer(context.peer())
            state = self._service.pool.state
            return pb.HealthResponse(
                ready=self._service.is_ready,
                num_targets=state.num_targets if state else 0,
                num_drafts=state.num_drafts if state else 0,
                numerics=self._service.numerics,
                system_fingerprint=self._service.system_fingerprint,
                version=package_version(),
            )
        return pb.HealthResponse()

    def _admit(self, message: Any, context: CallContext) -> str:
        """Return the name of the caller's key.

        Raises for a caller that may not call, or a message that is too large.
        """
        self._access.check_peer(context.peer())
        client = self._access.check_key(_authorization(context))
        current_record().key = client
        if message.ByteSize() > self._max_body_bytes:
            raise BodyTooLargeError(
                f"the message has {message.ByteSize()} bytes, "
                f"the limit is {self._max_body_bytes} (max_body_bytes)"
            )
        return client

    async def _prepare(self, message: pb.GenerateRequest, client: str) -> list[Generation]:
        """Return one generation for every choice."""
        self._service.check_model(message.model)
        read = await self._service.lanes.read(message.ByteSize(), partial(request_of, message))
        request = replace(read, client=client)
        prompts = [await self._prompt(message)]
        return await self._service.checked_choices(
            prompts, request, message.n or 1, num_bytes=message.ByteSize()
        )

    async def _prompt(self, message: pb.GenerateRequest) -> tuple[int, ...]:
        match message.WhichOneof("input"):
            case "prompt":
                return await self._service.encode(message.prompt)
            case "prompt_token_ids":
                return tuple(message.prompt_token_ids.ids)
            case "chat":
                num_bytes = message.ByteSize()
                chat = await self._service.lanes.read(num_bytes, partial(chat_of, message.chat))
                return await self._service.encode_chat(*chat, num_bytes=num_bytes)
        raise InvalidRequestError(
            "prompt, prompt_token_ids or chat is needed",
            param="prompt",
            code="missing_required_parameter",
        )

    def _response(
        self, generation: Generation, answer: ReadAnswer, chunk: OutputChunk
    ) -> pb.GenerateResponse:
        request, parsed = generation.request, answer.read(chunk)
        shows_tokens = not answer.hides_tokens
        response = pb.GenerateResponse(
            request_id=request.request_id,
            index=chunk.index,
            token_ids=chunk.token_ids if shows_tokens else (),
            text=parsed.content,
            reasoning=parsed.reasoning,
            tool_calls=[
                pb.ToolCall(id=call.call_id, name=call.name, arguments=call.arguments)
                for call in parsed.calls
            ],
            seed=request.params.seed,
            system_fingerprint=self._service.system_fingerprint,
        )
        if request.params.num_logprobs is not None and shows_tokens:
            response.logprobs.CopyFrom(logprobs_to_pb(chunk.logprobs))
        if chunk.prompt_logprobs:
            response.prompt_logprobs.CopyFrom(logprobs_to_pb(chunk.prompt_logprobs))
        if isinstance(chunk.stop_reason, str):
            response.stop_string = chunk.stop_reason
        if chunk.finish_reason is not None:
            num_prompt, stats = len(request.prompt_token_ids), chunk.stats or RequestStats()
            num_tokens = chunk.index + len(chunk.token_ids)
            response.finish_reason = (
                pb.FINISH_REASON_TOOL_CALLS
                if answer.ends_with_calls(chunk)
                else FINISH_REASONS[chunk.finish_reason]
            )
            response.usage.CopyFrom(
                pb.Usage(
                    prompt_tokens=num_prompt,
                    completion_tokens=num_tokens,
                    total_tokens=num_prompt + num_tokens,
                    cached_prompt_tokens=stats.num_cached_tokens,
                    reasoning_tokens=answer.num_reasoning_tokens,
                )
            )
            response.speculation.CopyFrom(stats_to_pb(stats))
            response.speculation.num_spec_tokens = self._service.num_spec_tokens(request)
        return response


def _authorization(context: CallContext) -> str | None:
    metadata = {key.lower(): value for key, value in context.invocation_metadata()}
    return metadata.get("authorization")


@contextlib.contextmanager
def _answering(context: CallContext) -> Iterator[None]:
    """Turn errors into a code and details."""
    try:
        yield
    except Exception as error:
        _refuse(context, error)


def _refuse(context: CallContext, error: Exception) -> None:
    status = status_of(error)
    if status.http == 500 and not isinstance(error, RequestFailedError):
        logger.error("a call failed unexpectedly", exc_info=error)
    context.set_code(status.code)
    context.set_details(public_error(error).message)
    packed = _rpc_status(error).SerializeToString()
    context.set_trailing_metadata([(_STATUS_DETAILS, packed)])


def _rpc_status(error: Exception) -> status_pb2.Status:
    """Return the error for programs: what google.rpc defines for its code and its delay."""
    public = public_error(error)
    number, _ = status_of(error).code.value
    status = status_pb2.Status(code=number, message=public.message)
    info = error_details_pb2.ErrorInfo(reason=public.code.upper(), domain=_ERROR_DOMAIN)
    if public.param:
        info.metadata["param"] = public.param
    status.details.add().Pack(info)
    if isinstance(error, TryAgainError):
        delay = duration_pb2.Duration()
        delay.FromMicroseconds(round(error.retry_after_s * 1_000_000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status
