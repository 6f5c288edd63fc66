"""Load a specdec server over gRPC, by GenerationService.Generate."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format

from deployments.cli.bench.client import SETUP_TIMEOUT_S, ServerTotals
from deployments.cli.bench.prompts import Prompt
from deployments.cli.bench.records import AnswerError, Chunk, Usage
from deployments.cli.bench.speculation import counts_of_answer
from deployments.cli.bench.stage_figures import stages_of_status
from deployments.text.chat_messages import checked_messages
from deployments.wire.endpoint import MESSAGE_OPTIONS
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc
from specdec_core.errors import InvalidRequestError, SpecdecError

Metadata = tuple[tuple[str, str], ...]

_STATS = (
    "num_spec_steps",
    "num_draft_tokens",
    "num_accepted_draft_tokens",
    "acceptance_histogram",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcClient:
    """A `Client` over gRPC."""

    stub: pb_grpc.GenerationServiceStub
    model: str
    metadata: Metadata
    extra_body: Mapping[str, Any]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        message = request_message(self.model, prompt, self.extra_body)
        call = self.stub.Generate(message, metadata=self.metadata)
        try:
            async for response in call:
                yield read_response(response)
        except grpc.aio.AioRpcError as error:
            raise AnswerError(_told(error)) from error
        finally:
            call.cancel()

    async def totals(self) -> ServerTotals:
        """Return the stage totals. Speculation is not among them because every answer reports its
        own."""
        call = self.stub.PoolStatus(
            pb.PoolStatusRequest(), metadata=self.metadata, timeout=SETUP_TIMEOUT_S
        )
        try:
            return ServerTotals(stages=stages_of_status(await call))
        except grpc.aio.AioRpcError:
            return ServerTotals()


@contextlib.asynccontextmanager
async def grpc_client(
    address: str, *, model: str | None, api_key: str | None, extra_body: Mapping[str, Any]
) -> AsyncIterator[GrpcClient]:
    """Connect. Without a model name, requests go to the server's first model. Raises
    SpecdecError."""
    metadata: Metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
    request_message("", Prompt(text="", sampling={}), extra_body)
    async with grpc.aio.insecure_channel(address, options=MESSAGE_OPTIONS) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        name = model or await _first_model(stub, address, metadata)
        yield GrpcClient(stub=stub, model=name, metadata=metadata, extra_body=extra_body)


async def _first_model(
    stub: pb_grpc.GenerationServiceStub, address: str, metadata: Metadata
) -> str:
    try:
        call = stub.ListModels(pb.ListModelsRequest(), metadata=metadata, timeout=SETUP_TIMEOUT_S)
        return str((await call).models[0].id)
    except grpc.aio.AioRpcError as error:
        raise SpecdecError(f"{address} does not answer: {_told(error)}") from error
    except IndexError as error:
        raise SpecdecError(f"{address} names no model: give --model") from error


def request_message(
    model: str, prompt: Prompt, extra_body: Mapping[str, Any]
) -> pb.GenerateRequest:
    """Return the message, with `extra_body` merged in as JSON. Raises InvalidRequestError if
    `extra_body` does not fit."""
    given = dict(prompt.sampling)
    if "logit_bias" in given:
        given["logit_bias"] = {int(key): value for key, value in given["logit_bias"].items()}
    message = pb.GenerateRequest(
        model=model, sampling=pb.SamplingParams(**given), cache_salt=prompt.cache_salt or ""
    )
    if prompt.token_ids is not None:
        message.prompt_token_ids.ids.extend(prompt.token_ids)
    elif prompt.messages is not None:
        message.chat.messages.extend(
            pb.ChatMessage(role=line["role"], content=line["content"])
            for line in checked_messages(prompt.messages)
        )
    else:
        message.prompt = prompt.text or ""
    try:
        json_format.ParseDict(dict(extra_body), message)
    except json_format.ParseError as error:
        raise InvalidRequestError(f"--extra-body: {error}") from error
    return message


def read_response(response: pb.GenerateResponse) -> Chunk:
    """Convert a response to a chunk. Raises AnswerError if the answer was aborted."""
    if response.finish_reason == pb.FINISH_REASON_ABORT:
        raise AnswerError("the server ended the answer early")
    usage = speculation = None
    if response.HasField("usage"):
        usage = Usage(response.usage.prompt_tokens, response.usage.completion_tokens)
    if response.HasField("speculation"):
        told = {name: getattr(response.speculation, name) for name in _STATS}
        speculation = counts_of_answer(told)
    weight = len(response.token_ids) or len(response.text)
    return Chunk(weight=weight, usage=usage, speculation=speculation)


def _told(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
