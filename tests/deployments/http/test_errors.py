"""The error object of OpenAI's API: its code, its param and its status, whole and in a stream."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from deployments.error_status import error_body, public_error
from deployments.errors import (
    ClientLimitError,
    DeadlineError,
    PoolUnavailableError,
    RequestFailedError,
    UnknownModelError,
    WrongTypeError,
    error_of,
    failure_of,
)
from deployments.ingress.request_limits import RequestLimits
from specdec_core.errors import InvalidRequestError, QueueFullError
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from tests.deployments.http_server import completion, server, stream

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "HI"}], "max_tokens": 4}

INVALID: list[tuple[dict[str, Any], str, str | None]] = [
    (completion(prompt="A" * 512), "context_length_exceeded", "prompt"),
    (completion(prompt=[1] * 600), "context_length_exceeded", "prompt"),
    (completion(prompt="A" * 500), "context_length_exceeded", "max_tokens"),
    (completion(max_completion_tokens=600), "context_length_exceeded", "max_completion_tokens"),
    (CHAT | {"max_completion_tokens": 600}, "context_length_exceeded", "max_completion_tokens"),
    (
        CHAT | {"messages": [{"role": "user", "content": "A" * 511}]},
        "context_length_exceeded",
        "max_tokens",
    ),
    (
        CHAT | {"messages": [{"role": "user", "content": "A" * 600}]},
        "context_length_exceeded",
        "messages",
    ),
    (completion(temperature="hot"), "invalid_type", "temperature"),
    (completion(prompt=7), "invalid_type", "prompt"),
    (completion(stop=[1]), "invalid_type", "stop"),
    (completion(speculative={"enabled": "perhaps"}), "invalid_type", "speculative.enabled"),
    (completion(logit_bias={"3": "much"}), "invalid_type", "logit_bias.3"),
    (completion(stream_options=[]), "invalid_type", "stream_options"),
    ({"model": "fake"}, "missing_required_parameter", "prompt"),
    ({"prompt": None}, "missing_required_parameter", "prompt"),
    ({"messages": None}, "missing_required_parameter", "messages"),
    (completion(resume={"token_ids": None}), "missing_required_parameter", "resume.token_ids"),
    (completion(resume={"seed": 1}), "missing_required_parameter", "resume.token_ids"),
    (completion(resume={"token_ids": ["a"]}), "invalid_value", "resume.token_ids"),
    (completion(temperature=101), "decimal_above_max_value", "temperature"),
    (completion(temperature=-1), "decimal_below_min_value", "temperature"),
    (completion(top_p=0), "decimal_below_min_value", "top_p"),
    (completion(top_k=-2), "integer_below_min_value", "top_k"),
    (completion(seed=2**64), "integer_above_max_value", "seed"),
    (completion(max_tokens=0), "integer_below_min_value", "max_tokens"),
    (completion(max_completion_tokens=0), "integer_below_min_value", "max_completion_tokens"),
    (completion(n=0), "integer_below_min_value", "n"),
    (completion(n=129), "integer_above_max_value", "n"),
    (completion(logprobs=21), "integer_above_max_value", "logprobs"),
    (CHAT | {"logprobs": True, "top_logprobs": 21}, "integer_above_max_value", "top_logprobs"),
    (CHAT | {"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    (completion(truncate_prompt_tokens=0), "integer_below_min_value", "truncate_prompt_tokens"),
    (completion(priority=2**31), "integer_above_max_value", "priority"),
    (completion(stop_token_ids=[99]), "invalid_value", "stop_token_ids"),
    (completion(stop=["x"] * 17), "array_above_max_length", "stop"),
    (completion(stop=""), "invalid_value", "stop"),
    (completion(logit_bias={"99": 1}), "invalid_value", "logit_bias"),
    (completion(bad_words=[""]), "invalid_value", "bad_words"),
    (completion(prompt=[99]), "invalid_value", "prompt"),
    (completion(prompt=""), "invalid_value", "prompt"),
    (completion(cache_salt="x" * 257), "string_above_max_length", "cache_salt"),
    (completion(request_id="x" * 129), "string_above_max_length", "request_id"),
    (completion(best_of=3), "unsupported_value", "best_of"),
    (completion(suffix="x"), "unsupported_value", "suffix"),
    (CHAT | {"audio": {"voice": "alloy"}}, "unsupported_parameter", "audio"),
    (
        completion(speculative={"num_speculative_tokens": 5}),
        "integer_above_max_value",
        "speculative.num_speculative_tokens",
    ),
    (completion(speculative={"method": "hybrid"}), "invalid_value", "speculative.method"),
    (CHAT | {"tool_choice": "required"}, "missing_required_parameter", "tools"),
    (CHAT | {"tool_choice": "perhaps"}, "invalid_value", "tool_choice"),
    (CHAT | {"chat_template": "x"}, "unsupported_parameter", "chat_template"),
]


async def test_every_refusal_has_a_code_and_the_name_of_its_field() -> None:
    async with server() as (client, _):
        for body, code, param in INVALID:
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            for streams in (False, True):
                answer = await client.post(path, json=body | {"stream": streams})
                assert answer.status_code == 400, (body, answer.text)
                error = answer.json()["error"]
                assert (error["code"], error["param"]) == (code, param), (body, error)
                assert error["type"] == "invalid_request_error"
                assert error["message"]


@pytest.mark.parametrize(
    ("content", "code"), [(b"{", "invalid_json"), (b"[1]", "invalid_type"), (b"", "invalid_json")]
)
async def test_a_body_that_is_no_object_has_no_param(content: bytes, code: str) -> None:
    async with server() as (client, _):
        answer = await client.post("/v1/chat/completions", content=content)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, code, None)


async def test_other_errors_have_their_own_codes() -> None:
    async with server(keys=("k",)) as (client, _):
        good = {"authorization": "Bearer k"}
        for path, headers, body, expected in (
            ("/v1/completions", good, completion(model="x"), (404, "model_not_found", "model")),
            ("/v1/completions", {}, completion(), (401, "invalid_api_key", None)),
            ("/v1/nothing", good, {}, (404, "unknown_url", None)),
            ("/v1/models", good, {}, (405, "method_not_supported", None)),
            (
                "/v1/completions",
                good,
                completion(prompt="A" * 200_000),
                (413, "request_too_large", None),
            ),
        ):
            answer = await client.post(path, headers=headers, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == expected, error


async def test_the_operators_limits_name_the_field_too() -> None:
    limits = RequestLimits(max_prompt_tokens=4, max_output_tokens=8)
    async with server(limits=limits) as (client, _):
        for body, code, param in (
            (completion(prompt="HELLO"), "context_length_exceeded", "prompt"),
            (completion(prompt="HI", max_tokens=9), "integer_above_max_value", "max_tokens"),
        ):
            error = (await client.post("/v1/completions", json=body)).json()["error"]
            assert (error["code"], error["param"]) == (code, param)


async def test_an_error_within_a_stream_has_the_same_shape() -> None:
    async with server(limits=RequestLimits(timeout_s=0.3)) as (client, parts):
        replica = parts.replicas["t0"]
        execute = replica.execute

        def slow(lease: Any) -> Any:
            time.sleep(0.05)
            return execute(lease)

        replica.execute = slow  # type: ignore[method-assign]
        chunks = await stream(client, "/v1/completions", completion(max_tokens=400))
        assert chunks[0]["choices"]
        error = chunks[-1]["error"]
        assert (error["type"], error["code"], error["param"]) == (
            "timeout_error",
            "timeout",
            None,
        )


@pytest.mark.parametrize(
    ("error", "code", "param"),
    [
        (
            InvalidRequestError("x", param="a.b", code="unsupported_value"),
            "unsupported_value",
            "a.b",
        ),
        (InvalidRequestError("x"), "invalid_value", None),
        (WrongTypeError("x", param="n"), "invalid_type", "n"),
        (UnknownModelError("x"), "model_not_found", "model"),
        (QueueFullError(3, 2, 1.0), "rate_limit_exceeded", None),
        (ClientLimitError("x", 1.0), "rate_limit_exceeded", None),
        (DeadlineError("x"), "timeout", None),
        (RequestFailedError("x"), "request_failed", None),
        (PoolUnavailableError("x"), "service_unavailable", None),
        (ZeroDivisionError("x"), "internal_error", None),
    ],
)
def test_the_code_of_every_kind(error: Exception, code: str, param: str | None) -> None:
    told = error_body(error)["error"]
    assert (told["code"], told["param"]) == (code, param)


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("x", param="request_id", code="invalid_value"),
        InvalidRequestError("x", param="max_tokens", code="context_length_exceeded"),
        WrongTypeError("x", param="n"),
        QueueFullError(3, 2, 1.0),
        ClientLimitError("x", 1.0),
    ],
)
def test_a_failure_of_the_pool_keeps_param_and_code(error: Exception) -> None:
    assert public_error(error_of(failure_of(error))) == public_error(error)


async def test_a_refusal_of_the_coordinator_reaches_the_client_with_its_field() -> None:
    """The ingress of the second request does not know the first one's id."""
    async with server() as (client, parts):
        other = await parts.client("other")
        while other.state is None:
            await asyncio.sleep(0.005)
        first = Request(
            request_id="taken",
            prompt_token_ids=(1, 2),
            params=SamplingParams(max_tokens=400, temperature=0.0),
            end_token_ids=frozenset(),
        )
        events = other.generate(first)
        await anext(events)
        answer = await client.post("/v1/completions", json=completion(request_id="taken"))
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (
            400,
            "request_id",
            "invalid_value",
        )
        await events.aclose()
