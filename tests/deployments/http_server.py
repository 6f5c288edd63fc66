"""The OpenAI routes over a real pool and fake replicas, and how a test asks them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from opentelemetry.trace import Tracer

from deployments.api.http.routes import build_http_app
from deployments.config.api_keys import key_digest
from deployments.config.client_limits import ClientLimits
from deployments.config.service import SpecMetrics, UnknownFieldsMode
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.request_limits import RequestLimits
from deployments.ingress.scheduler_client import ChunkPacing
from deployments.names import MetricsCompat
from deployments.observability.tracing.requests import RequestSpans
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from deployments.text.tokenizer import TextModel
from specdec_core.config import SchedulerConfig, SpeculationConfig
from specdec_core.messages import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.fake_replica import continuation
from tests.deployments.fake_text import fake_text_model

TEXT = fake_text_model()
SPECULATION = SpeculationConfig()
"""As the pool's."""


@contextlib.asynccontextmanager
async def application(
    *,
    keys: tuple[str, ...] = (),
    config: SchedulerConfig | None = None,
    targets: int = 1,
    compat: MetricsCompat = MetricsCompat.NONE,
    metrics: SpecMetrics = SpecMetrics.SUMMARY,
    limits: RequestLimits | None = None,
    grammar_limits: GrammarLimits = DEFAULT_LIMITS,
    trusts_chat_templates: bool = False,
    body_timeout_s: float = 60.0,
    stream_interval: int = 1,
    pace: ChunkPacing | None = None,
    tracer: Tracer | None = None,
    drafts: int = 0,
    text: TextModel = TEXT,
    model_name: str = "fake",
    make_target: Callable[[], Any] | None = None,
    unknown_fields: UnknownFieldsMode = UnknownFieldsMode.WARN,
    limits_per_key: ClientLimits | None = None,
    host: str = "127.0.0.1",
    allowed_hosts: tuple[str, ...] = (),
    metrics_key: str = "",
    cors_origins: tuple[str, ...] = (),
    keep_alive_s: float = 15.0,
) -> AsyncIterator[tuple[FastAPI, Cell]]:
    """`make_target`: makes a target replica of another kind; it understands `text`."""
    async with cell(config, limits=limits_per_key, tracer=tracer) as parts:
        for number in range(targets):
            parts.start_replica(f"t{number}", Role.TARGET, make_target and make_target())
        for number in range(drafts):
            parts.start_replica(f"d{number}", Role.DRAFT)
        pool = await parts.client(pace=pace)
        while pool.state is None or pool.state.num_targets < targets:
            await asyncio.sleep(0.005)
        while pool.state.num_drafts < drafts:
            await asyncio.sleep(0.005)
        service = GenerationService(
            text,
            pool,
            model_name=model_name,
            speculation=SPECULATION,
            limits=limits,
            grammar_limits=grammar_limits,
            trusts_chat_templates=trusts_chat_templates,
            stream_interval=stream_interval,
            spans=RequestSpans(tracer, model_name=model_name),
        )
        access = Access(
            {key_digest(key): f"name of {key}" for key in keys},
            host,
            allowed_hosts=allowed_hosts,
            metrics_key_digest=key_digest(metrics_key) if metrics_key else "",
        )
        app = build_http_app(
            service,
            access,
            max_body_bytes=100_000,
            metrics=metrics,
            metrics_compat=compat,
            unknown_fields=unknown_fields,
            body_timeout_s=body_timeout_s,
            cors_origins=cors_origins,
            keep_alive_s=keep_alive_s,
        )
        yield app, parts


@contextlib.asynccontextmanager
async def server(**settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Cell]]:
    """A client of an `application` with these settings."""
    async with application(**settings) as (app, parts):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, parts


@contextlib.asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """The address of a real server of `app`: its answers come piece by piece."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
    listener = uvicorn.Server(config)
    serving = asyncio.create_task(listener.serve())
    while not listener.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.servers[0].sockets[0].getsockname()[1]}"
    finally:
        listener.should_exit = True
        await serving


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": "HELLO", "max_tokens": 20, "temperature": 0} | fields


def expected_text(prompt: str, num_tokens: int) -> str:
    return TEXT.decode(continuation(TEXT.encode(prompt), num_tokens))


async def stream(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[Any]:
    answer = await client.post(path, json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
