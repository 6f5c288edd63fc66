"""Errors over gRPC for programs: google.rpc.ErrorInfo in the trailing metadata."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from deployments.config.client_limits import ClientLimits
from specdec.v1 import generation_pb2 as pb
from tests.deployments.ingress.test_grpc_api import FakeContext, api

CODE = grpc.StatusCode


def asked(**fields: Any) -> pb.GenerateRequest:
    sampling = pb.SamplingParams(**{"temperature": 0, "max_tokens": 4} | fields)
    return pb.GenerateRequest(prompt="HELLO", sampling=sampling)


def info_of(context: FakeContext) -> error_details_pb2.ErrorInfo:
    packed = context.trailers["grpc-status-details-bin"]
    assert isinstance(packed, bytes)
    status = status_pb2.Status.FromString(packed)
    assert context.code is not None
    assert (status.code, status.message) == (context.code.value[0], context.details)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "specdec"
    return info


REFUSED = [
    (asked(temperature=-1), CODE.INVALID_ARGUMENT, "DECIMAL_BELOW_MIN_VALUE", "temperature"),
    (asked(top_p=3), CODE.INVALID_ARGUMENT, "DECIMAL_ABOVE_MAX_VALUE", "top_p"),
    (asked(max_tokens=600), CODE.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED", "max_tokens"),
    (
        asked(repetition_penalty=1e-40),
        CODE.INVALID_ARGUMENT,
        "DECIMAL_BELOW_MIN_VALUE",
        "repetition_penalty",
    ),
    (
        pb.GenerateRequest(prompt="A" * 600),
        CODE.INVALID_ARGUMENT,
        "CONTEXT_LENGTH_EXCEEDED",
        "prompt",
    ),
    (
        pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[1] * 600)),
        CODE.INVALID_ARGUMENT,
        "CONTEXT_LENGTH_EXCEEDED",
        "prompt_token_ids",
    ),
    (
        pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[99])),
        CODE.INVALID_ARGUMENT,
        "INVALID_VALUE",
        "prompt_token_ids",
    ),
    (pb.GenerateRequest(), CODE.INVALID_ARGUMENT, "MISSING_REQUIRED_PARAMETER", "prompt"),
    (pb.GenerateRequest(prompt="A", model="x"), CODE.NOT_FOUND, "MODEL_NOT_FOUND", "model"),
    (pb.GenerateRequest(prompt="A" * 20_000), CODE.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE", None),
]


@pytest.mark.parametrize(("message", "code", "reason", "param"), REFUSED)
async def test_a_refusal_has_its_code_and_field_whole_and_streamed(
    message: pb.GenerateRequest, code: grpc.StatusCode, reason: str, param: str | None
) -> None:
    async with api() as (calls, _):
        once, streamed = FakeContext(), FakeContext()
        await calls.generate_once(message, once)
        told = [part async for part in calls.generate(message, streamed)]
        assert told == [pb.GenerateResponse()]
        for context in (once, streamed):
            info = info_of(context)
            assert (context.code, info.reason) == (code, reason)
            assert info.metadata.get("param") == param


async def test_the_other_calls_have_one_too() -> None:
    async with api(keys=("k",)) as (calls, _):
        context = FakeContext(key="wrong")
        await calls.list_models(pb.ListModelsRequest(), context)
        assert info_of(context).reason == "INVALID_API_KEY"
        context = FakeContext(key="k")
        await calls.detokenize(pb.DetokenizeRequest(token_ids=[99]), context)
        assert info_of(context).metadata["param"] == "token_ids"
        context = FakeContext(key="k")
        await calls.abort(pb.AbortRequest(), context)
        assert info_of(context).reason == "MISSING_REQUIRED_PARAMETER"


async def test_who_has_to_wait_gets_both_details() -> None:
    async with api(keys=("k",), limits=ClientLimits(max_concurrent=0)) as (calls, _):
        context = FakeContext(key="k")
        await calls.generate_once(asked(), context)
        assert info_of(context).reason == "RATE_LIMIT_EXCEEDED"
        status = status_pb2.Status.FromString(context.trailers["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        assert status.details[1].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() > 0


def named(name: str) -> list[pb.GenerateRequest]:
    """Wrong requests whose refusals quote `name`."""
    properties = {name: {"type": "foo"}}
    schema = json.dumps({"type": "object", "properties": properties}, ensure_ascii=False)
    message = pb.ChatMessage(role=name, content="x")
    return [
        pb.GenerateRequest(prompt="A", model=name),
        pb.GenerateRequest(chat=pb.ChatMessages(messages=[message])),
        asked(structured_output=pb.StructuredOutput(json_schema=schema)),
    ]


@pytest.mark.parametrize("sign", ["A", "é", "🙂"])
async def test_an_error_that_quotes_a_long_name_fits_into_the_trailers(sign: str) -> None:
    """Clients answer larger trailers with RESOURCE_EXHAUSTED."""
    async with api() as (calls, _):
        for message in named(sign * 2_000):
            context = FakeContext()
            async for _answer in calls.generate(message, context):
                pass
            assert context.code in (CODE.INVALID_ARGUMENT, CODE.NOT_FOUND), context.details
            assert sign * 100 in context.details
            packed = context.trailers["grpc-status-details-bin"]
            num_bytes = len(urllib.parse.quote(context.details)) + len(packed) * 4 // 3
            assert num_bytes < 7_500
