"""The RPCs over a real pool and fake replicas, with the context that Serve would pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from deployments.api.grpc.service import GrpcApi
from deployments.config.api_keys import key_digest
from deployments.config.client_limits import ClientLimits
from deployments.errors import PoolUnavailableError
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.text.structured_output import ANY_OBJECT, choice, json_schema, lark, regex
from deployments.version import package_version
from specdec.v1 import generation_pb2 as pb
from specdec_core.config import SpeculationConfig
from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.messages import Role
from specdec_core.request import Request, TokenEvent
from tests.deployments.cell import Cell, cell
from tests.deployments.fake_replica import FakeReplica, continuation
from tests.deployments.fake_text import fake_text_model

TEXT = fake_text_model()
GREEDY = pb.SamplingParams(temperature=0, max_tokens=20)
CODE = grpc.StatusCode


class FakeContext:
    def __init__(self, peer: str = "ipv4:127.0.0.1:4000", key: str = "") -> None:
        self.code: grpc.StatusCode | None = None
        self.trailers: dict[str, str | bytes] = {}
        self.details = ""
        self._peer = peer
        self._metadata = [("authorization", f"Bearer {key}")] if key else []

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None:
        self.trailers = dict(trailing_metadata)


@contextlib.asynccontextmanager
async def api(
    keys: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    limits: ClientLimits | None = None,
    target: FakeReplica | None = None,
) -> AsyncIterator[tuple[GrpcApi, Cell]]:
    async with cell(limits=limits) as parts:
        parts.start_replica("t0", Role.TARGET, target)
        pool = await parts.client()
        while pool.state is None or not pool.state.num_targets:
            await asyncio.sleep(0.005)
        service = GenerationService(TEXT, pool, model_name="fake", speculation=SpeculationConfig())
        access = Access({key_digest(key): f"name of {key}" for key in keys}, host)
        yield GrpcApi(service, access, max_body_bytes=10_000), parts


async def test_once_and_stream_give_the_plain_continuation() -> None:
    async with api() as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY)
        whole = await calls.generate_once(message, FakeContext())
        expected = continuation(TEXT.encode("HELLO"), 20)
        assert list(whole.token_ids) == expected
        assert whole.text == TEXT.decode(expected)
        assert whole.finish_reason == pb.FINISH_REASON_LENGTH
        assert whole.usage.total_tokens == 25
        parts = [part async for part in calls.generate(message, FakeContext())]
        assert [i for part in parts for i in part.token_ids] == expected
        assert "".join(part.text for part in parts) == whole.text
        assert [part.index for part in parts] == [
            sum(len(p.token_ids) for p in parts[:place]) for place in range(len(parts))
        ]
        assert parts[-1].usage == whole.usage


async def test_the_usage_tells_what_of_the_prompt_was_cached() -> None:
    async with api(target=FakeReplica(Role.TARGET, num_matched=3)) as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY)
        whole = await calls.generate_once(message, FakeContext())
        *_, last = [part async for part in calls.generate(message, FakeContext())]
        assert whole.usage.cached_prompt_tokens == last.usage.cached_prompt_tokens == 3


@pytest.mark.parametrize(
    ("message", "code", "details"),
    [
        (pb.GenerateRequest(), CODE.INVALID_ARGUMENT, "is needed"),
        (pb.GenerateRequest(model="x", prompt="A"), CODE.NOT_FOUND, "'x'"),
        (pb.GenerateRequest(prompt=""), CODE.INVALID_ARGUMENT, "at least 1 token"),
        (
            pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[-3])),
            CODE.INVALID_ARGUMENT,
            "token id -3",
        ),
        (
            pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[50])),
            CODE.INVALID_ARGUMENT,
            "token id 50 is not in 0..49",
        ),
        (
            pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[1] * 600)),
            CODE.INVALID_ARGUMENT,
            "context length is 512",
        ),
        (pb.GenerateRequest(chat=pb.ChatMessages()), CODE.INVALID_ARGUMENT, "at least 1"),
        (
            pb.GenerateRequest(prompt="A", sampling=pb.SamplingParams(temperature=float("nan"))),
            CODE.INVALID_ARGUMENT,
            "got nan",
        ),
        (
            pb.GenerateRequest(prompt="A", sampling=pb.SamplingParams(top_p=0)),
            CODE.INVALID_ARGUMENT,
            "top_p",
        ),
        (
            pb.GenerateRequest(prompt="A", sampling=pb.SamplingParams(max_tokens=-1)),
            CODE.INVALID_ARGUMENT,
            "got -1",
        ),
        (pb.GenerateRequest(prompt="A" * 20_000), CODE.RESOURCE_EXHAUSTED, "10000"),
        (
            pb.GenerateRequest(prompt="A", speculative=pb.Speculative(method="draft_model")),
            CODE.INVALID_ARGUMENT,
            "one of ngram, none here",
        ),
        (
            pb.GenerateRequest(
                prompt="A", sampling=pb.SamplingParams(structured_output=pb.StructuredOutput())
            ),
            CODE.INVALID_ARGUMENT,
            "must set one of its kinds",
        ),
        (
            pb.GenerateRequest(
                prompt="A",
                sampling=pb.SamplingParams(structured_output=pb.StructuredOutput(regex="([")),
            ),
            CODE.INVALID_ARGUMENT,
            "the regex '([' cannot be read",
        ),
        (
            pb.GenerateRequest(
                prompt="A",
                sampling=pb.SamplingParams(
                    structured_output=pb.StructuredOutput(json_schema="[" * 9_000)
                ),
            ),
            CODE.INVALID_ARGUMENT,
            "structured_output.json_schema is nested too deeply",
        ),
        (
            pb.GenerateRequest(
                prompt="A",
                sampling=pb.SamplingParams(
                    structured_output=pb.StructuredOutput(json_schema='{"const": 9007199254740993}')
                ),
            ),
            CODE.INVALID_ARGUMENT,
            "#/const is 9007199254740993",
        ),
    ],
)
async def test_bad_requests_get_a_code_and_a_reason(
    message: pb.GenerateRequest, code: grpc.StatusCode, details: str
) -> None:
    async with api() as (calls, _):
        context = FakeContext()
        assert await anext(calls.generate(message, context)) == pb.GenerateResponse()
        assert (context.code, details in context.details) == (code, True), context.details
        once = FakeContext()
        await calls.generate_once(message, once)
        assert (once.code, once.details) == (context.code, context.details)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (pb.StructuredOutput(json_object=True), ANY_OBJECT),
        (pb.StructuredOutput(json_schema='{"type": "null"}'), json_schema({"type": "null"})),
        (pb.StructuredOutput(regex="a+"), GrammarSpec(GrammarKind.REGEX, "a+")),
        (pb.StructuredOutput(regex=r"\d{3}-\w\s"), regex(r"\d{3}-\w\s")),
        (pb.StructuredOutput(grammar='start: "a"'), lark('start: "a"')),
        (pb.StructuredOutput(choice=pb.Choices(texts=["a", "b"])), choice(["a", "b"])),
    ],
)
async def test_a_grammar_reaches_the_replicas(
    asked: pb.StructuredOutput, expected: GrammarSpec
) -> None:
    pytest.importorskip("llguidance")
    async with api() as (calls, parts):
        sampling = pb.SamplingParams(max_tokens=3, structured_output=asked)
        message = pb.GenerateRequest(prompt="HELLO", sampling=sampling)
        await calls.generate_once(message, FakeContext())
        (rules,) = parts.replicas["t0"].rules_seen
        assert rules.params.grammar == expected


@pytest.mark.parametrize(
    ("speculative", "aimed_at"),
    [
        (pb.Speculative(), 4),
        (pb.Speculative(num_speculative_tokens=2), 2),
        (pb.Speculative(method="ngram"), 4),
        (pb.Speculative(method="none"), 0),
        (pb.Speculative(enabled=False), 0),
    ],
)
async def test_the_last_message_tells_what_was_aimed_at(
    speculative: pb.Speculative, aimed_at: int
) -> None:
    async with api() as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY, speculative=speculative)
        answer = await calls.generate_once(message, FakeContext())
        assert answer.speculation.num_spec_tokens == aimed_at


async def test_a_deadline_in_the_message_ends_the_request_and_frees_its_kv() -> None:
    async with api() as (calls, parts):
        message = pb.GenerateRequest(
            prompt="A", sampling=pb.SamplingParams(max_tokens=500), deadline_ms=20
        )
        context = FakeContext()
        *_, last = [part async for part in calls.generate(message, context)]
        assert last == pb.GenerateResponse()
        assert context.code is CODE.DEADLINE_EXCEEDED
        while parts.replicas["t0"].num_slots:
            await asyncio.sleep(0.005)


async def test_a_bug_of_ours_shows_nothing_of_itself() -> None:
    async with api() as (calls, _):
        calls._service.prepare = None  # type: ignore[method-assign,assignment]
        context = FakeContext()
        await calls.generate_once(pb.GenerateRequest(prompt="A"), context)
        assert (context.code, context.details) == (CODE.INTERNAL, "internal error")


async def test_abort_over_grpc() -> None:
    async with api() as (calls, _):
        message = pb.GenerateRequest(
            prompt="A", sampling=pb.SamplingParams(max_tokens=500), request_id="mine"
        )
        parts = calls.generate(message, FakeContext())
        await anext(parts)
        context = FakeContext()
        answer = await calls.abort(pb.AbortRequest(request_id="mine"), context)
        assert answer.aborted
        rest = [part async for part in parts]
        assert rest[-1].finish_reason == pb.FINISH_REASON_ABORT
        again = await calls.abort(pb.AbortRequest(request_id="mine"), context)
        assert not again.aborted
        await calls.abort(pb.AbortRequest(), context)
        assert context.code is CODE.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("peer", "host", "code"),
    [
        ("ipv4:127.0.0.1:4000", "127.0.0.1", None),
        ("ipv6:%5B::1%5D:4000", "127.0.0.1", None),
        ("ipv6:[::ffff:127.0.0.1]:4000", "localhost", None),
        ("unix:/tmp/socket", "127.0.0.1", None),
        ("ipv4:192.0.2.7:4000", "127.0.0.1", CODE.PERMISSION_DENIED),
        ("ipv6:%5B2001:db8::7%5D:4000", "127.0.0.1", CODE.PERMISSION_DENIED),
        ("ipv4:192.0.2.7:4000", "0.0.0.0", None),
    ],
)
async def test_a_loopback_server_answers_local_callers_only(
    peer: str, host: str, code: grpc.StatusCode | None
) -> None:
    async with api(host=host) as (calls, _):
        context = FakeContext(peer)
        await calls.list_models(pb.ListModelsRequest(), context)
        assert context.code is code


async def test_keys_status_and_tokens() -> None:
    async with api(keys=("secret",)) as (calls, _):
        refused = FakeContext(key="wrong")
        await calls.pool_status(pb.PoolStatusRequest(), refused)
        assert refused.code is CODE.UNAUTHENTICATED
        known = FakeContext(key="secret")
        status = await calls.pool_status(pb.PoolStatusRequest(), known)
        assert [replica.role for replica in status.replicas] == ["target"]
        ids = (await calls.tokenize(pb.TokenizeRequest(text="AB"), known)).token_ids
        back = await calls.detokenize(pb.DetokenizeRequest(token_ids=ids), known)
        assert back.text == "AB"
        assert known.code is None


async def test_health_needs_no_key_and_names_the_release() -> None:
    async with api(keys=("one",)) as (calls, parts):
        told = await calls.health(pb.HealthRequest(), FakeContext())
        assert (told.ready, told.num_targets, told.num_drafts) == (True, 1, 0)
        assert told.version == package_version()
        far = FakeContext(peer="ipv4:10.0.0.7:4000")
        await calls.health(pb.HealthRequest(), far)
        assert far.code is CODE.PERMISSION_DENIED
        await parts.kill_coordinator()
        while (told := await calls.health(pb.HealthRequest(), FakeContext())).num_targets:
            await asyncio.sleep(0.005)
        assert told.ready, "requests wait for the next coordinator"


async def test_who_finds_no_target_is_told_when_to_come_back() -> None:
    async with api() as (calls, parts):
        parts.clients["client"].generate = no_target  # type: ignore[method-assign,assignment]
        context = FakeContext()
        await calls.generate_once(pb.GenerateRequest(prompt="HELLO", sampling=GREEDY), context)
        assert context.code is CODE.UNAVAILABLE
        packed = context.trailers["grpc-status-details-bin"]
        assert isinstance(packed, bytes)
        info = error_details_pb2.RetryInfo()
        assert status_pb2.Status.FromString(packed).details[1].Unpack(info)
        assert info.retry_delay.ToMilliseconds() == 1000


async def no_target(request: Request, **_: object) -> AsyncIterator[TokenEvent]:
    raise PoolUnavailableError("no target")
    yield


async def test_who_is_refused_for_now_is_told_when_to_come_back() -> None:
    """As google.rpc says it, where clients look for it."""
    async with api(keys=("one",), limits=ClientLimits(requests_per_minute=1)) as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY)
        await calls.generate_once(message, FakeContext(key="one"))
        context = FakeContext(key="one")
        await calls.generate_once(message, context)
        assert context.code is CODE.RESOURCE_EXHAUSTED
        packed = context.trailers["grpc-status-details-bin"]
        assert isinstance(packed, bytes)
        status = status_pb2.Status.FromString(packed)
        assert (status.code, status.message) == (8, context.details)
        info = error_details_pb2.RetryInfo()
        assert status.details[1].Unpack(info)
        assert 0 < info.retry_delay.ToMilliseconds() <= 60_000


@pytest.mark.parametrize("count", [1, 7, 19, 20])
async def test_a_stream_goes_on_behind_the_ids_that_its_client_has(count: int) -> None:
    async with api() as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY)
        whole = await calls.generate_once(message, FakeContext())
        ids = pb.TokenIds(ids=whole.token_ids[:count])
        message.resume.CopyFrom(
            pb.Resume(token_ids=[ids], system_fingerprint=whole.system_fingerprint)
        )
        parts = [part async for part in calls.generate(message, FakeContext())]
        assert [i for part in parts for i in part.token_ids] == whole.token_ids[count:]
        assert "".join(part.text for part in parts) == whole.text[count:]
        assert parts[0].index == count
        assert parts[-1].finish_reason == whole.finish_reason
        assert parts[-1].usage == whole.usage
        entire = await calls.generate_once(message, FakeContext())
        assert (entire.token_ids, entire.text) == (whole.token_ids, whole.text)
        assert entire.usage == whole.usage


async def test_the_seed_of_a_resumed_answer_is_that_of_its_first_message() -> None:
    async with api() as (calls, _):
        message = pb.GenerateRequest(prompt="HELLO", sampling=pb.SamplingParams(max_tokens=9))
        first = await anext(aiter(calls.generate(message, FakeContext())))
        ids = pb.TokenIds(ids=first.token_ids)
        message.resume.CopyFrom(pb.Resume(token_ids=[ids], seed=first.seed))
        assert (await calls.generate_once(message, FakeContext())).seed == first.seed


async def test_what_cannot_be_resumed_is_refused() -> None:
    right = continuation(TEXT.encode("HELLO"), 20)
    wrong = pb.TokenIds(ids=[right[0], (right[1] + 1) % 50])
    for resume, code, details in (
        (pb.Resume(token_ids=[wrong]), CODE.INVALID_ARGUMENT, "at position 1 is not this"),
        (pb.Resume(), CODE.INVALID_ARGUMENT, "resume.token_ids has 0 lists"),
        (
            pb.Resume(system_fingerprint="x"),
            CODE.FAILED_PRECONDITION,
            "is 'x', but this server now has",
        ),
    ):
        async with api() as (calls, _):
            message = pb.GenerateRequest(prompt="HELLO", sampling=GREEDY, resume=resume)
            context = FakeContext()
            *_, last = [part async for part in calls.generate(message, context)]
            assert (last, context.code) == (pb.GenerateResponse(), code)
            assert details in context.details
            once = FakeContext()
            await calls.generate_once(message, once)
            assert once.code is code
            assert details in once.details
