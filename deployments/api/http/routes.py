"""The OpenAI routes as a FastAPI application over a GenerationService. No Ray."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from deployments.api.http import event_stream
from deployments.api.http.chat_fields import ChatFields, checked_prompts
from deployments.api.http.errors import error_response, log_unexpected
from deployments.api.http.logprob_json import Echo
from deployments.api.http.middleware import (
    BODY_TIMEOUT_S,
    BodyCoding,
    BodyLimit,
    HeadAsGet,
    RequestLines,
    WebGuard,
    traced,
)
from deployments.api.http.openapi import STATUS, answers, body_of, path_parameter, refusals
from deployments.api.http.responses import CHAT, COMPLETION, Choice, Shape, with_warnings
from deployments.api.http.responses import Response as Answer
from deployments.api.http.schemas import (
    BodyType,
    ChatBody,
    CommonBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    parse_body,
)
from deployments.api.http.sse import END, server_sent
from deployments.api.http.unknown_fields import UnknownFields
from deployments.api.http.unknown_routes import unknown_route
from deployments.config.service import SpecMetrics, UnknownFieldsMode
from deployments.error_status import error_body
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import Generation, GenerationRequest
from deployments.ingress.output import OutputChunk, joined
from deployments.ingress.request_limits import last_ids
from deployments.ingress.request_log import current_record
from deployments.ingress.streams import Admission, Begun, begin
from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import CONTENT_TYPE, metrics_page
from deployments.observability.metrics.visibility import visible
from deployments.text.answers.choosing import ChosenFormats
from deployments.text.chat_messages import checked_messages
from deployments.text.chat_rendering import ChatOptions
from deployments.version import package_version

Result = TypeVar("Result")
KEEP_ALIVE_S = 15.0
"""Seconds of silence after which a stream sends a comment line."""
_REFUSED = (400, 401, 403, 404, 413, 415, 500)
_REFUSED_GENERATION = (408, 409, 429, 503)
"""Statuses of the routes with a body."""
_CORS: dict[str, Any] = {
    "allow_methods": ("GET", "HEAD", "POST"),
    "allow_headers": ("*",),
    "expose_headers": ("Retry-After", "WWW-Authenticate"),
    "allow_private_network": True,  # Chromium asks for it when the server's address is private
}


def build_http_app(
    service: GenerationService,
    access: Access,
    *,
    max_body_bytes: int,
    metrics: SpecMetrics,
    metrics_compat: MetricsCompat = MetricsCompat.NONE,
    unknown_fields: UnknownFieldsMode = UnknownFieldsMode.WARN,
    body_timeout_s: float = BODY_TIMEOUT_S,
    cors_origins: Sequence[str] = (),
    keep_alive_s: float = KEEP_ALIVE_S,
) -> FastAPI:
    app = FastAPI(
        title="specdec",
        version=package_version(),
        docs_url=None,
        redoc_url=None,
        # A redirect names the address that the proxy listens on, which a gateway's clients lack.
        redirect_slashes=False,
    )
    # The last one is the first that sees a request.
    app.add_middleware(BodyCoding, max_bytes=max_body_bytes)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes, timeout_s=body_timeout_s)
    app.add_middleware(WebGuard, access=access, origins=cors_origins)
    app.add_middleware(RequestLines, paths=("/v1/completions", "/v1/chat/completions"))
    app.add_middleware(HeadAsGet)
    app.add_middleware(CORSMiddleware, allow_origins=cors_origins, **_CORS)
    app.add_exception_handler(HTTPException, unknown_route)
    unknown = UnknownFields(unknown_fields)
    routes = _Routes(service, access, metrics, metrics_compat, unknown, keep_alive_s)
    app.get("/health")(routes.health)
    app.get("/ready", response_model=None, responses=STATUS)(routes.ready)
    app.get("/version")(_version)
    app.get("/metrics", response_class=PlainTextResponse, responses=refusals(401, 403, 503))(
        routes.metrics
    )
    get = partial(app.get, response_model=None, responses=answers(401, 403, 404, 500))
    for path in ("/v1/models", "/v1/models/"):
        get(path, name="models")(routes.guarded(routes.models))
    named = path_parameter("name")
    get("/v1/models/{name:path}", name="model", openapi_extra=named)(routes.guarded(routes.model))
    for path, call, kind in (
        ("/v1/completions", routes.completions, CompletionBody),
        ("/v1/chat/completions", routes.chat_completions, ChatBody),
        ("/tokenize", routes.tokenize, TokenizeBody),
        ("/detokenize", routes.detokenize, DetokenizeBody),
    ):
        generates = issubclass(kind, CommonBody)
        shape = CHAT if kind is ChatBody else COMPLETION
        route = traced(service, shape, call) if generates else call
        refused = _REFUSED + (_REFUSED_GENERATION if generates else ())
        app.post(
            path,
            name=path.strip("/").replace("/", "_"),
            response_model=None,
            responses=answers(*refused, streams=generates),
            openapi_extra=body_of(kind),
        )(routes.guarded(route))
    return app


class _Routes:
    def __init__(
        self,
        service: GenerationService,
        access: Access,
        metrics: SpecMetrics,
        metrics_compat: MetricsCompat,
        unknown: UnknownFields,
        keep_alive_s: float,
    ) -> None:
        self._service = service
        self._access = access
        self._metrics = metrics
        self._metrics_compat = metrics_compat
        self._unknown = unknown
        self._keep_alive_s = keep_alive_s

    def guarded(self, call: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return the route behind the API key, with its errors in OpenAI's shape."""

        async def route(request: Request) -> Response:
            try:
                client = self._access.check_key(request.headers.get("authorization"))
                request.state.client = current_record().key = client
                answer: Response = await call(request)
                return answer
            except Exception as error:
                return error_response(error)

        return route

    async def health(self) -> dict[str, str]:
        """Alive; says nothing of the pool."""
        return {"status": "ok"}

    async def ready(self) -> JSONResponse:
        if not self._service.is_ready:
            return JSONResponse({"status": "no target replica is up"}, status_code=503)
        return JSONResponse(
            {
                "status": "ready",
                "numerics": self._service.numerics,
                "system_fingerprint": self._service.system_fingerprint,
            }
        )

    async def metrics(self, request: Request) -> Response:
        """Return the totals, and the figures of the API keys that the caller may see.

        The status is 503 if no coordinator answers, because zeros would be wrong.
        """
        try:
            names = self._access.visible_names(request.headers.get("authorization"))
            status = visible(await self._service.pool.pool_status(), names)
        except Exception as error:
            return error_response(error)
        page = metrics_page(status, self._service.model_name, self._metrics_compat)
        return Response(page, media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [self._model_card()]})

    async def model(self, request: Request) -> JSONResponse:
        self._service.check_model(request.path_params["name"])
        return JSONResponse(self._model_card())

    async def completions(self, request: Request) -> Response:
        body = await self._body(CompletionBody, request)
        self._service.check_model(body.model)
        given = await self._off_loop(request, partial(checked_prompts, body.prompt))
        adds = body.add_special_tokens
        ids = await self._service.encode_all(given, add_special_tokens=adds)
        echoes = await self._echoes(given, ids, body) if body.echo else []
        generation_request = replace(
            await self._off_loop(request, body.to_request), client=request.state.client
        )
        return await self._answer(COMPLETION, ids, body, generation_request, echoes)

    async def chat_completions(self, request: Request) -> Response:
        body = await self._body(ChatBody, request)
        self._service.check_model(body.model)
        ids = await self._chat_ids(request, body.messages, body)
        generation_request = replace(
            await self._off_loop(request, body.to_request), client=request.state.client
        )
        num_bytes = len(await request.body())
        return await self._answer(CHAT, [ids], body, generation_request, num_bytes=num_bytes)

    async def tokenize(self, request: Request) -> JSONResponse:
        body = await self._body(TokenizeBody, request)
        self._service.check_model(body.model)
        ids = await self._ids_to_count(request, body)
        return JSONResponse(
            {
                "tokens": list(ids),
                "count": len(ids),
                "max_model_len": self._service.max_model_len,
                **with_warnings(body.warnings),
            }
        )

    async def detokenize(self, request: Request) -> JSONResponse:
        body = await self._body(DetokenizeBody, request)
        self._service.check_model(body.model)
        text = await self._service.decode_all(body.tokens, "tokens")
        return JSONResponse({"prompt": text, **with_warnings(body.warnings)})

    async def _body(self, kind: type[BodyType], request: Request) -> BodyType:
        raw, check = await request.body(), self._service.limits.check_entries
        return await self._off_loop(request, partial(parse_body, kind, raw, self._unknown, check))

    async def _off_loop(self, request: Request, call: Callable[[], Result]) -> Result:
        """Return `call()`, whose cost grows with the body. Other requests continue meanwhile."""
        return await self._service.lanes.read(len(await request.body()), call)

    async def _chat_ids(
        self, request: Request, messages: list[dict[str, Any]], fields: ChatFields
    ) -> tuple[int, ...]:
        """Return the IDs of a conversation; its messages and tools are read off the event loop."""

        def read() -> tuple[list[dict[str, Any]], ChatOptions]:
            return checked_messages(messages), fields.chat_options

        num_bytes = len(await request.body())
        checked, options = await self._off_loop(request, read)
        return await self._service.encode_chat(checked, options, num_bytes=num_bytes)

    async def _ids_to_count(self, request: Request, body: TokenizeBody) -> Sequence[int]:
        if body.messages is not None:
            return await self._chat_ids(request, body.messages, body)
        assert body.prompt is not None, "a body has one of the two"
        adds = body.add_special_tokens is not False
        return await self._service.encode(body.prompt, add_special_tokens=adds)

    async def _echoes(
        self, given: Sequence[str | list[int]], ids: Sequence[Sequence[int]], body: CompletionBody
    ) -> list[Echo]:
        """Return the prompts as they are fed. With `truncate_prompt_tokens` these are their
        ends."""
        count = body.truncate_prompt_tokens
        prompts = [
            (last_ids(own, count), prompt if isinstance(prompt, str) and count is None else None)
            for prompt, own in zip(given, ids, strict=True)
        ]
        texts = await self._service.echo(prompts, has_offsets=body.echoes_logprobs)
        return [Echo(*one) for one in texts]

    async def _answer(
        self,
        shape: Shape,
        prompts: Sequence[Sequence[int]],
        body: CommonBody,
        generation_request: GenerationRequest,
        echoes: Sequence[Echo] = (),
        *,
        num_bytes: int = 0,
    ) -> Response:
        generations = await self._service.checked_choices(
            prompts, generation_request, body.num_choices, num_bytes=num_bytes
        )
        answer = self._start(shape, generations, body, echoes)
        if not body.stream:
            outputs = await _collect(self._service.run_choices(generations), answer)
            return await event_stream.whole(answer, outputs, self._service.lanes)
        admission = Admission(one.request.request_id for one in generations)
        chunks = self._service.run_choices(generations, streams=True, on_accepted=admission.accept)
        begun = await begin(chunks, admission, self._keep_alive_s)
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        to_event = partial(event_stream.event, answer, lanes=self._service.lanes)
        lines = _stream(answer, to_event, begun, wants_usage=wants_usage)
        return event_stream.EventStream(lines, keep_alive_s=self._keep_alive_s, on_end=begun.aclose)

    def _start(
        self,
        shape: Shape,
        generations: Sequence[Generation],
        body: CommonBody,
        echoes: Sequence[Echo],
    ) -> Answer:
        n, options = body.num_choices, body.stream_options
        return Answer(
            shape=shape,
            choices=[
                Choice(
                    position,
                    generation,
                    echoes[position // n] if echoes else Echo(),
                )
                for position, generation in enumerate(generations)
            ],
            n=n,
            model=self._service.model_name,
            system_fingerprint=self._service.system_fingerprint,
            num_spec_tokens=self._service.num_spec_tokens(generations[0].request),
            token_bytes=self._service.text.token_bytes,
            metrics=self._metrics,
            respond=self._service.pool.times.respond,
            return_token_ids=bool(body.return_token_ids),
            num_prompt_logprobs=body.prompt_logprobs,
            counts_in_chunks=options is not None and options.continuous_usage_stats,
            warnings=body.warnings,
        )

    def _model_card(self) -> dict[str, Any]:
        return {
            "id": self._service.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "specdec",
            "max_model_len": self._service.max_model_len,
            **_parsers(self._service.text.formats),
        }


def _parsers(formats: ChosenFormats) -> dict[str, Any]:
    """Return how answers are read, and the sources that decided on it."""
    calls, reasoning = formats.calls, formats.reasoning
    return {
        "tool_call_parser": calls.name,
        "reasoning_parser": reasoning.name,
        "chosen_by": {
            "tool_call_parser": calls.chosen_by,
            "reasoning_parser": reasoning.chosen_by,
        },
    }


async def _collect(
    chunks: AsyncGenerator[tuple[int, OutputChunk]], answer: Answer
) -> list[OutputChunk]:
    """Return every choice's whole output."""
    outputs: list[list[OutputChunk]] = [[] for _ in answer.choices]
    async with contextlib.aclosing(chunks):
        async for position, chunk in chunks:
            answer.timing.note(chunk)
            outputs[position].append(chunk)
    return [joined(one) for one in outputs]


async def _stream(
    answer: Answer,
    to_event: Callable[[int, OutputChunk], Awaitable[str]],
    begun: Begun[tuple[int, OutputChunk]],
    *,
    wants_usage: bool,
) -> AsyncIterator[str]:
    """Yield server-sent events. A request that fails now ends with an error event."""
    try:
        first = await begun.first
        for opening in answer.first_chunks():
            yield server_sent(opening)
        if event := await to_event(*first):
            yield event
        async for position, chunk in begun.rest:
            if event := await to_event(position, chunk):
                yield event
        if wants_usage:
            yield server_sent(answer.usage_chunk())
    except Exception as error:
        log_unexpected(error)
        yield server_sent(error_body(error))
    yield END


async def _version() -> dict[str, str]:
    return {"version": package_version()}
