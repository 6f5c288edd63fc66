"""The OpenAI routes as a FastAPI application over a GenerationService. No Ray."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from deployments.api.http.errors import error_response, log_unexpected, unknown_route
from deployments.api.http.logprob_json import Echo
from deployments.api.http.middleware import BODY_TIMEOUT_S, HeadAsGet, RequestGuard, RequestLines
from deployments.api.http.openapi import STATUS, answers, body_of, path_parameter, refusals
from deployments.api.http.responses import CHAT, COMPLETION, Choice, Shape, with_warnings
from deployments.api.http.responses import Response as Answer
from deployments.api.http.schemas import (
    BodyType,
    ChatBody,
    CommonBody,
    CompletionBody,
    DetokenizeBody,
    StreamOptions,
    TokenizeBody,
    checked_prompts,
    parse_body,
)
from deployments.api.http.sse import END, EventStream, server_sent
from deployments.api.http.unknown_fields import UnknownFields
from deployments.config.service import SpecMetrics, UnknownFieldsMode
from deployments.error_status import error_body
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import GenerationRequest
from deployments.ingress.output import OutputChunk, joined
from deployments.ingress.request_limits import INLINE, Lanes, last_ids
from deployments.ingress.request_log import current_record
from deployments.ingress.streams import Admission, Begun, begin
from deployments.names import MetricsCompat
from deployments.observability.metrics.export_prometheus import CONTENT_TYPE, metrics_page
from deployments.observability.metrics.visibility import visible
from deployments.observability.tracing import names
from deployments.observability.tracing.requests import Operation
from deployments.text.answers.choosing import ChosenFormats
from deployments.text.chat_messages import checked_messages
from deployments.text.chat_rendering import ChatOptions
from deployments.version import package_version

KEEP_ALIVE_S = 15.0
"""Seconds of silence after which a stream sends a comment line."""
_CHARS_PER_ENTRY = 5
"""Cost of writing one log-probability, in characters to tokenize."""
_NO_ECHO = (Echo(),)
"""The echo of one prompt, as its choices have it unless the request asks for one."""
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
    app.add_middleware(
        RequestGuard,
        access=access,
        origins=cors_origins,
        max_bytes=max_body_bytes,
        timeout_s=body_timeout_s,
    )
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
        operation = Operation.CHAT if kind is ChatBody else Operation.TEXT
        refused = _REFUSED + (_REFUSED_GENERATION if generates else ())
        app.post(
            path,
            name=path.strip("/").replace("/", "_"),
            response_model=None,
            responses=answers(*refused, streams=generates),
            openapi_extra=body_of(kind),
        )(routes.guarded(call, operation if generates else None))
    return app


Route: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class _Routes:
    _service: GenerationService
    _access: Access
    _metrics: SpecMetrics
    _metrics_compat: MetricsCompat
    _unknown: UnknownFields
    _keep_alive_s: float

    def guarded(self, call: Route, operation: Operation | None = None) -> Route:
        """Return the route behind the API key, with its errors in OpenAI's shape.

        With an `operation` it runs within the span of its request.
        """
        id_prefix = f"{(CHAT if operation is Operation.CHAT else COMPLETION).id_prefix}-"

        async def route(request: Request) -> Response:
            try:
                client = self._access.check_key(request.headers.get("authorization"))
                request.state.client = current_record().key = client
                if operation is None:
                    return await call(request)
                about = {names.HTTP_METHOD: request.method, names.HTTP_ROUTE: request.url.path}
                with self._service.spans.of(operation, request.headers, about, id_prefix=id_prefix):
                    return await call(request)
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
            clients = self._access.visible_names(request.headers.get("authorization"))
            status = visible(await self._service.pool.pool_status(), clients)
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
        raw = await request.body()

        def read() -> tuple[CompletionBody, list[str | list[int]], GenerationRequest]:
            body = self._parse(CompletionBody, raw)
            return body, checked_prompts(body.prompt), body.to_request()

        body, given, asked = await self._service.lanes.read(len(raw), read)
        adds = body.add_special_tokens
        ids = await self._service.encode_all(given, add_special_tokens=adds)
        echoes = await self._echoes(given, ids, body) if body.echo else _NO_ECHO * len(ids)
        return await self._answer(request, COMPLETION, ids, body, asked, echoes)

    async def chat_completions(self, request: Request) -> Response:
        raw = await request.body()

        def read() -> tuple[ChatBody, list[dict[str, Any]], GenerationRequest]:
            body = self._parse(ChatBody, raw)
            return body, checked_messages(body.messages), body.to_request()

        body, messages, asked = await self._service.lanes.read(len(raw), read)
        ids = await self._service.encode_chat(messages, body.chat_options, num_bytes=len(raw))
        return await self._answer(request, CHAT, [ids], body, asked)

    async def tokenize(self, request: Request) -> JSONResponse:
        raw = await request.body()

        def read() -> tuple[TokenizeBody, list[dict[str, Any]], ChatOptions | None]:
            body = self._parse(TokenizeBody, raw)
            if body.messages is None:
                return body, [], None
            return body, checked_messages(body.messages), body.chat_options

        body, messages, options = await self._service.lanes.read(len(raw), read)
        ids: Sequence[int]
        if body.prompt is None:
            ids = await self._service.encode_chat(messages, options, num_bytes=len(raw))
        else:
            adds = body.add_special_tokens is not False
            ids = await self._service.encode(body.prompt, add_special_tokens=adds)
        return JSONResponse(
            {
                "tokens": list(ids),
                "count": len(ids),
                "max_model_len": self._service.max_model_len,
                **with_warnings(body.warnings),
            }
        )

    async def detokenize(self, request: Request) -> JSONResponse:
        raw = await request.body()
        parse = partial(self._parse, DetokenizeBody, raw)
        body = await self._service.lanes.read(len(raw), parse)
        text = await self._service.decode_all(body.tokens, "tokens")
        return JSONResponse({"prompt": text, **with_warnings(body.warnings)})

    def _parse(self, kind: type[BodyType], raw: bytes) -> BodyType:
        """Return a body for this model. Its cost grows with `raw`, so it runs in a lane."""
        body = parse_body(kind, raw, self._unknown, self._service.limits.check_entries)
        self._service.check_model(body.model)
        return body

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
        request: Request,
        shape: Shape,
        prompts: Sequence[Sequence[int]],
        body: CommonBody,
        asked: GenerationRequest,
        echoes: Sequence[Echo] = _NO_ECHO,
    ) -> Response:
        service, n = self._service, 1 if body.n is None else body.n
        options, num_bytes = body.stream_options or StreamOptions(), len(await request.body())
        asked = replace(asked, client=request.state.client)
        generations = await service.checked_choices(prompts, asked, n, num_bytes=num_bytes)
        answer = Answer(
            shape=shape,
            choices=[Choice(i, one, echoes[i // n]) for i, one in enumerate(generations)],
            n=n,
            model=service.model_name,
            system_fingerprint=service.system_fingerprint,
            num_spec_tokens=service.num_spec_tokens,
            token_bytes=service.text.token_bytes,
            metrics=self._metrics,
            respond=service.pool.times.respond,
            created=int(time.time()),
            return_token_ids=bool(body.return_token_ids),
            num_prompt_logprobs=body.prompt_logprobs,
            counts_in_chunks=options.continuous_usage_stats,
            ends_with_usage=options.include_usage,
            warnings=body.warnings,
        )
        if not body.stream:
            return await whole(answer, service.run_choices(generations), service.lanes)
        admission = Admission(one.request.request_id for one in generations)
        chunks = service.run_choices(generations, streams=True, on_accepted=admission.accept)
        begun = await begin(chunks, admission, self._keep_alive_s)
        events = streamed(answer, begun, service.lanes)
        return EventStream(events, self._keep_alive_s, on_end=begun.aclose)

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


async def whole(
    answer: Answer, chunks: AsyncGenerator[tuple[int, OutputChunk]], lanes: Lanes
) -> Response:
    """Return the response with every choice's whole output."""
    parts: list[list[OutputChunk]] = [[] for _ in answer.choices]
    async with contextlib.aclosing(chunks):
        async for position, chunk in chunks:
            answer.timing.note(chunk)
            parts[position].append(chunk)
    outputs = [joined(one) for one in parts]
    size = _work(outputs)
    if size <= INLINE:
        with answer.respond:
            return JSONResponse(answer.whole(outputs))
    # The json module would hold the interpreter's lock three times as long.
    body = await lanes.run(size, lambda: to_json(answer.whole(outputs)))
    return Response(body, media_type="application/json")


async def streamed(
    answer: Answer, begun: Begun[tuple[int, OutputChunk]], lanes: Lanes
) -> AsyncIterator[str]:
    """Yield server-sent events. A request that fails now ends with an error event."""
    try:
        item: tuple[int, OutputChunk] | None = await begun.first
        for opening in answer.first_chunks():
            yield server_sent(opening)
        while item is not None:
            size = _work([item[1]]) if item[1].prompt_logprobs else 0
            if size <= INLINE:
                with answer.respond:
                    event = answer.event(*item)
            else:
                event = await lanes.run(size, partial(answer.event, *item))
            if event:
                yield event
            item = await anext(begun.rest, None)
        if answer.ends_with_usage:
            yield server_sent(answer.usage_chunk())
    except Exception as error:
        log_unexpected(error)
        yield server_sent(error_body(error))
    yield END


def _work(chunks: Sequence[OutputChunk]) -> int:
    """Return the cost of writing these log-probabilities, in characters to tokenize."""
    entries = (entry for chunk in chunks for entry in (*chunk.logprobs, *chunk.prompt_logprobs))
    return _CHARS_PER_ENTRY * sum(1 + len(entry.top) for entry in entries)


async def _version() -> dict[str, str]:
    return {"version": package_version()}
