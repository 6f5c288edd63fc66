"""Asks one question over HTTP or gRPC, and judges what came back by the protocol's rules."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from benchmarks.overload.http_exchange import Answer, CutOffError, completion, exchange, post
from benchmarks.overload.questions import Ids, Outcome, Question, Server, Verdict, Way
from deployments.api.http.sse import DONE, event_data
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

_STATUS_DETAILS = "grpc-status-details-bin"


async def ask(
    server: Server, stub: pb_grpc.GenerationServiceStub, question: Question, timeout_s: float
) -> Outcome:
    """Never raises: whatever happened is the outcome."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_s):
            if question.way is Way.GRPC:
                outcome = await _over_grpc(server, stub, question)
            else:
                outcome = await _over_http(server, question)
    except TimeoutError:
        outcome = _failed(question, f"no end within {timeout_s:g} s")
    except (OSError, CutOffError, ValueError, LookupError) as error:
        outcome = _failed(question, f"{type(error).__name__}: {error}")
    return replace(outcome, seconds=time.perf_counter() - started)


async def _over_http(server: Server, question: Question) -> Outcome:
    body = completion(server, question.prompt, question.max_tokens)
    body |= {"return_token_ids": True, "stream": question.way is Way.HTTP_STREAM}
    return judged(question, await exchange(server, post(server, "/v1/completions", body)))


def judged(question: Question, answer: Answer) -> Outcome:
    """Raises ValueError or LookupError for a body that is not what it should be."""
    if answer.status == 200:
        ids = _streamed_ids(answer) if question.way is Way.HTTP_STREAM else _whole_ids(answer)
        return _answered(question, ids)
    why = f"HTTP {answer.status}: {answer.body.decode(errors='replace')[:300]}"
    hint = answer.headers.get("retry-after")
    if answer.status == 429 and hint is not None:
        return _refused(question, why, float(hint))
    return _failed(question, why)


def _whole_ids(answer: Answer) -> Ids:
    return tuple(json.loads(answer.body)["choices"][0]["token_ids"])


def _streamed_ids(answer: Answer) -> Ids:
    events = map(event_data, answer.body.decode().splitlines())
    *chunks, last = (data for data in events if data is not None)
    if last != DONE:
        raise ValueError(f"the stream ends with {last[:100]!r}")
    return tuple(_ids_of([json.loads(chunk) for chunk in chunks]))


def _ids_of(chunks: list[dict[str, Any]]) -> Iterator[int]:
    for chunk in chunks:
        if "error" in chunk:
            raise ValueError(str(chunk["error"])[:300])
        for choice in chunk["choices"]:
            yield from choice["token_ids"] or ()


async def _over_grpc(
    server: Server, stub: pb_grpc.GenerationServiceStub, question: Question
) -> Outcome:
    message = generate_request(server, question.prompt, question.max_tokens)
    ids: list[int] = []
    call = stub.Generate(message, metadata=metadata(server))
    try:
        async for response in call:
            ids += response.token_ids
    except grpc.aio.AioRpcError as error:
        return judged_error(question, error)
    finally:
        call.cancel()
    return _answered(question, tuple(ids))


def generate_request(server: Server, prompt: Ids, max_tokens: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        model=server.model,
        prompt_token_ids=pb.TokenIds(ids=prompt),
        sampling=pb.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True),
    )


def metadata(server: Server) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {server.api_key}"),) if server.api_key else ()


def judged_error(question: Question, error: grpc.aio.AioRpcError) -> Outcome:
    why = f"{error.code().name}: {error.details()}"
    hint = retry_hint(error)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and hint is not None:
        return _refused(question, why, hint)
    return _failed(question, why)


def retry_hint(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds, as google.rpc says them; None where the server says nothing."""
    packed = dict(error.trailing_metadata() or ()).get(_STATUS_DETAILS)
    if packed is None:
        return None
    for detail in status_pb2.Status.FromString(packed).details:
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToMicroseconds()) / 1e6
    return None


def _answered(question: Question, ids: Ids) -> Outcome:
    return Outcome(question=question, verdict=Verdict.ANSWERED, token_ids=ids)


def _refused(question: Question, why: str, hint: float) -> Outcome:
    return Outcome(question=question, verdict=Verdict.REFUSED, why=why, retry_after_s=hint)


def _failed(question: Question, why: str) -> Outcome:
    return Outcome(question=question, verdict=Verdict.FAILED, why=why)
