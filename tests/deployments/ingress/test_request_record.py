"""One line for every request, however it ends, over both protocols: who, how much, how long."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from deployments.api.grpc.service import GrpcApi
from deployments.config.client_limits import ClientLimits
from deployments.errors import PoolUnavailableError
from deployments.ingress.auth import Access
from deployments.ingress.request_limits import RequestLimits
from deployments.names import Part
from deployments.observability.json_logs import Fields, JsonFormatter
from deployments.observability.logs import REQUESTS
from deployments.observability.process import ProcessName
from specdec.v1 import generation_pb2 as pb
from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.errors import QueueFullError
from specdec_core.messages import Role
from specdec_core.request import Request, TokenEvent
from tests.deployments.fake_replica import FakeReplica, continuation
from tests.deployments.http_server import TEXT, completion, server, stream
from tests.deployments.ingress.test_grpc_api import FakeContext, api
from tests.deployments.overload.test_waiting import _client, counted, full_service
from tests.deployments.tracing.memory import HEADERS, TRACE_ID

PATH = "/v1/completions"
IDS = continuation(TEXT.encode("HELLO"), 20)
GREEDY = pb.SamplingParams(temperature=0, max_tokens=20)


class Lines(logging.Handler):
    """What the logger of requests was given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def all(self) -> list[dict[str, Any]]:
        fields = [record.msg for record in self.records]
        assert all(isinstance(one, Fields) for one in fields)
        return [dict(one.values) for one in fields if isinstance(one, Fields)]

    def one(self) -> dict[str, Any]:
        """The only one so far."""
        (line,) = self.all
        return line


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, handler = logging.getLogger(REQUESTS), Lines()
    kept = (list(logger.handlers), logger.level, logger.propagate)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield handler
    logger.handlers[:], level, logger.propagate = kept
    logger.setLevel(level)


def documented_names() -> list[str]:
    """The names in the line that the documentation shows, in its order."""
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    (shown,) = re.findall("^request (request_id=.*)$", page, re.MULTILINE)
    return [pair.partition("=")[0] for pair in shown.split()]


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    """Both are there: the first token came before the answer had left."""
    times = {name: line.pop(name) for name in ("ttft_ms", "duration_ms")}
    assert 0 < times["ttft_ms"] <= times["duration_ms"]
    return line


FIXED = SchedulerConfig(speculation=SpeculationConfig(method=SpecMethod.DRAFT_MODEL))


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_served_request_says_everything_over_http(lines: Lines, is_stream: bool) -> None:
    async with server(keys=("k",), config=FIXED, drafts=1) as (client, _):
        asked = completion(request_id="r1", stream=is_stream)
        asked |= {"stream_options": {"include_usage": True}} if is_stream else {}
        headers = HEADERS | {"authorization": "Bearer k"}
        answer = await client.post(PATH, json=asked, headers=headers)
        events = answer.text.split("\n\n")
        whole = json.loads(events[-3].removeprefix("data: ")) if is_stream else answer.json()
        told = whole["metrics"]["speculative_decoding"]
        line = lines.one()
        optional = {"acceptance_rate"} - line.keys()
        assert list(line) == [name for name in documented_names() if name not in optional]
        without_times(line)
        # GenerationService's own settings here have no draft model: prompt lookup is its method
        assert line.pop("drafter") == ("ngram" if told["num_draft_tokens"] else "none")
        assert line.pop("acceptance_rate", 0.0) == round(told["draft_acceptance_rate"], 3)
        assert line == {
            "request_id": "r1",
            "trace_id": f"{TRACE_ID:032x}",
            "key": "name of k",
            "protocol": "http",
            "route": PATH,
            "choices": 1,
            "prompt_tokens": 5,
            "cached_tokens": 0,
            "resumed_tokens": 0,
            "output_tokens": 20,
            "drafted_tokens": told["num_draft_tokens"],
            "accepted_tokens": told["num_accepted_draft_tokens"],
            "finish_reason": "length",
            "status": 200,
        }


@pytest.mark.parametrize("method", ["Generate", "GenerateOnce"])
async def test_a_served_request_says_everything_over_grpc(lines: Lines, method: str) -> None:
    async with api(target=FakeReplica(Role.TARGET, num_matched=3)) as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY, request_id="r2")
        if method == "Generate":
            assert [part async for part in calls.generate(message, FakeContext())]
        else:
            await calls.generate_once(message, FakeContext())
        line = without_times(lines.one())
        for name in ("drafter", "drafted_tokens", "accepted_tokens"):
            del line[name]
        line.pop("acceptance_rate", None)
        assert line == {
            "request_id": "r2",
            "key": "none",
            "protocol": "grpc",
            "route": method,
            "choices": 1,
            "prompt_tokens": 5,
            "cached_tokens": 3,
            "resumed_tokens": 0,
            "output_tokens": 20,
            "finish_reason": "length",
            "grpc_status": "OK",
        }


async def test_choices_and_prompts_are_one_line_that_adds_up_as_usage_does(lines: Lines) -> None:
    async with server() as (client, _):
        body = completion(prompt=["HELLO", "ABC"], n=2, max_tokens=4, speculative=None)
        usage = (await client.post(PATH, json=body)).json()["usage"]
        line = lines.one()
        assert line["choices"] == 4
        assert line["prompt_tokens"] == usage["prompt_tokens"] == 8
        assert line["output_tokens"] == usage["completion_tokens"] == 16


async def test_what_is_decoded_without_speculation_was_drafted_by_nobody(lines: Lines) -> None:
    async with server() as (client, _):
        await client.post(PATH, json=completion(speculative={"enabled": False}))
        line = lines.one()
        assert (line["drafter"], line["drafted_tokens"]) == ("none", 0)
        assert "acceptance_rate" not in line


@pytest.mark.parametrize("is_stream", [False, True])
async def test_resumed_tokens_are_counted(lines: Lines, is_stream: bool) -> None:
    async with server() as (client, _):
        body = completion(resume={"token_ids": IDS[:7]}, stream=is_stream)
        assert (await client.post(PATH, json=body)).status_code == 200
        line = lines.one()
        assert (line["resumed_tokens"], line["output_tokens"]) == (7, 20)


REFUSED = [
    ({"prompt": ""}, "Bearer k", 400, "InvalidRequestError", "name of k"),
    ({"prompt": 7}, "Bearer k", 400, "WrongTypeError", "name of k"),
    ({"model": "x"}, "Bearer k", 404, "UnknownModelError", "name of k"),
    ({"prompt": "A" * 200_000}, "Bearer k", 413, "BodyTooLargeError", None),
    ({}, "Bearer wrong", 401, "UnauthorizedError", None),
]


@pytest.mark.parametrize(("fields", "key", "status", "error", "name"), REFUSED)
async def test_a_refusal_has_its_line_over_http(
    lines: Lines, fields: dict[str, Any], key: str, status: int, error: str, name: str | None
) -> None:
    async with server(keys=("k",)) as (client, _):
        headers = {"authorization": key}
        answer = await client.post(PATH, json=completion(**fields), headers=headers)
        assert answer.status_code == status
        line = lines.one()
        assert line.pop("duration_ms") >= 0
        assert line == {
            **({} if name is None else {"key": name}),
            "protocol": "http",
            "route": PATH,
            "finish_reason": "error",
            "error": error,
            "status": status,
        }


async def test_a_refusal_has_its_line_over_grpc(lines: Lines) -> None:
    async with api(keys=("k",), limits=ClientLimits(max_concurrent=0)) as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY, request_id="r3")
        await calls.generate_once(message, FakeContext(key="wrong"))
        told = calls.generate(pb.GenerateRequest(), FakeContext(key="k"))
        assert [part async for part in told] == [pb.GenerateResponse()]
        await calls.generate_once(pb.GenerateRequest(n=2), FakeContext(key="k"))
        await calls.generate_once(message, FakeContext(key="k"))
        assert [(one.get("key"), one["grpc_status"], one["error"]) for one in lines.all] == [
            (None, "UNAUTHENTICATED", "UnauthorizedError"),
            ("name of k", "INVALID_ARGUMENT", "InvalidRequestError"),
            (None, "INVALID_ARGUMENT", "InvalidRequestError"),
            ("name of k", "RESOURCE_EXHAUSTED", "ClientLimitError"),
        ]
        last = lines.all[-1]
        assert (last["request_id"], last["prompt_tokens"], last["output_tokens"]) == (
            "r3",
            5,
            0,
        )
        assert "ttft_ms" not in last


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_full_queue_is_a_429(lines: Lines, is_stream: bool) -> None:
    async with server() as (client, parts):
        parts.clients["client"].generate = is_full  # type: ignore[method-assign,assignment]
        await client.post(PATH, json=completion(request_id="r4", stream=is_stream))
        line = lines.one()
        assert (line["status"], line["error"]) == (429, "QueueFullError")
        assert (line["request_id"], line["prompt_tokens"]) == ("r4", 5)


async def is_full(request: Request, **_: Any) -> AsyncIterator[TokenEvent]:
    raise QueueFullError(8, 8, 1.0)
    yield


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_error_says_what_the_client_was_answered(lines: Lines, is_stream: bool) -> None:
    limits = RequestLimits(timeout_s=0.2)
    async with full_service(limits) as (service, _, _replica), _client(service) as client:
        answer = await client.post(PATH, json=completion(stream=is_stream))
        line = lines.one()
        # A stream has begun when it is queued.
        assert line["status"] == answer.status_code == (200 if is_stream else 408)
        assert (line["error"], line["finish_reason"]) == ("DeadlineError", "error")


async def test_an_error_in_a_stream_comes_after_its_200(lines: Lines) -> None:
    async with server() as (client, parts):
        parts.clients["client"].generate = breaks_off  # type: ignore[method-assign,assignment]
        answer = await client.post(PATH, json=completion(stream=True))
        assert answer.status_code == 200
        line = without_times(lines.one())
        assert (line["status"], line["output_tokens"]) == (200, 2)
        assert (line["error"], line["finish_reason"]) == ("PoolUnavailableError", "error")


async def breaks_off(request: Request, **_: Any) -> AsyncIterator[TokenEvent]:
    yield TokenEvent(request.request_id, 0, (7, 8))
    raise PoolUnavailableError("no target")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_leaves_is_cancelled(lines: Lines, is_stream: bool) -> None:
    async with full_service() as (service, parts, _), _client(service) as client:
        body = completion(stream=is_stream, request_id="left")
        call = asyncio.create_task(client.post(PATH, json=body))
        await counted(parts, num_waiting=1, num_running=1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        line = lines.one()
        assert (line["request_id"], line["finish_reason"]) == ("left", "cancelled")
        assert not line.keys() & {"status", "error", "ttft_ms", "drafter"}


async def test_a_grpc_client_that_leaves_is_cancelled_and_what_it_had_is_counted(
    lines: Lines,
) -> None:
    async with api() as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=pb.SamplingParams(max_tokens=400))
        answers = calls.generate(message, FakeContext())
        part = await anext(answers)
        await answers.aclose()  # type: ignore[attr-defined]
        line = without_times(lines.one())
        assert (line["finish_reason"], line["output_tokens"]) == (
            "cancelled",
            len(part.token_ids),
        )


async def test_an_abort_is_an_end_of_its_own(lines: Lines) -> None:
    async with full_service() as (service, parts, _):
        calls = GrpcApi(service, Access({}, "127.0.0.1"), max_body_bytes=10_000)
        message = pb.GenerateRequest(prompt="HELLO", request_id="a")
        call = asyncio.create_task(calls.generate_once(message, FakeContext()))
        await counted(parts, num_waiting=1, num_running=1)
        await calls.abort(pb.AbortRequest(request_id="a"), FakeContext())
        await call
        line = lines.one()
        assert (line["finish_reason"], line["grpc_status"]) == (
            "abort",
            grpc.StatusCode.OK.name,
        )


async def test_other_routes_have_no_line(lines: Lines) -> None:
    async with server() as (client, _):
        await client.post("/tokenize", json={"prompt": "HELLO"})
        for path in ("/health", "/metrics", "/v1/models", "/nowhere", PATH):
            await client.get(path)
    async with api() as (calls, _):
        await calls.tokenize(pb.TokenizeRequest(text="AB"), FakeContext())
    assert not lines.all


async def test_the_number_of_lines_is_that_of_the_requests(lines: Lines) -> None:
    async with server() as (client, _):
        for _ in range(3):
            await stream(client, PATH, completion(n=2))
    assert len(lines.all) == 3


async def test_switched_off_nothing_is_made_of_it(lines: Lines) -> None:
    logging.getLogger(REQUESTS).setLevel(logging.WARNING)
    async with server() as (client, _):
        await client.post(PATH, json=completion())
    assert not lines.all


async def test_text_quotes_what_could_be_read_as_more_and_json_has_members(lines: Lines) -> None:
    forged = 'x status=200\n"y"'
    async with server(keys=("k",)) as (client, _):
        headers = HEADERS | {"authorization": "Bearer k"}
        await client.post(PATH, json=completion(request_id=forged), headers=headers)
    (record,) = lines.records
    assert record.getMessage().startswith(
        f'request request_id="x status=200\\n\\"y\\"" trace_id={TRACE_ID:032x} '
        f'key="name of k" protocol=http route={PATH} choices=1 prompt_tokens=5 '
    )
    assert "\n" not in record.getMessage()
    told = json.loads(JsonFormatter(ProcessName(role=Part.INGRESS, id="i")).format(record))
    assert (told["logger"], told["message"]) == (REQUESTS, "request")
    assert (told["request_id"], told["process"]) == (forged, "ingress")
    assert {name: told[name] for name in lines.one()} == lines.one()
