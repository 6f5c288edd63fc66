"""The ingress: one Serve deployment that answers HTTP and gRPC.

Serve calls the method that bears an RPC's name, and the ASGI application that the class builds.

Serve does not report that a redeploy has replaced this service. It stops a target that still loads,
and leaves the ingress to its requests. They would wait for that target until the ingress is ended.
Serve checks the health of replicas that run, but not of those that it is stopping. Missing health
checks therefore reveal the redeploy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI
from opentelemetry.util.types import AttributeValue
from ray import serve
from ray.serve.grpc_util import RayServegRPCContext
from ray.serve.handle import DeploymentHandle

from deployments.api.grpc.service import GrpcApi
from deployments.api.http.routes import build_http_app
from deployments.config.service import ServiceConfig
from deployments.config.tls_check import check_tls
from deployments.coordinator.actor import Resolver, targets_begun
from deployments.coordinator.spec import CoordinatorSpec
from deployments.demo.models import resolve_model
from deployments.ingress.auth import Access
from deployments.ingress.cells.client import Pool
from deployments.ingress.cells.router import MOVE_AFTER_S, CellRouter
from deployments.ingress.generation import GenerationService
from deployments.ingress.request_limits import RequestLimits
from deployments.ingress.scheduler_client import ChunkPacing, SchedulerClient
from deployments.names import Part
from deployments.observability.logs import begin_replica_logs
from deployments.observability.metrics.request_times import IngressTimes
from deployments.observability.process import ProcessName
from deployments.observability.tracing import names
from deployments.observability.tracing.provider import Tracing, begin_tracing
from deployments.observability.tracing.requests import RequestSpans
from deployments.runtime.memory import keep_trimming
from deployments.text.tokenizer import TextModel, load_text_model
from specdec.v1 import generation_pb2 as pb

logger = logging.getLogger(__name__)

REPLACED = "this service was replaced while it had no target; send it again"
HEALTH_CHECK_PERIOD_S = 2
_MISSED_CHECKS = 6
"""Missed health checks that mean a redeploy. A Serve controller that dies is back sooner."""
_LOOK_S = 1.0
_TARGET_POLL_S = 0.25
_BEGINS_S = 40.0
"""Seconds after the start by which a target that has a place has begun to load.

Its process starts with the ingress's and takes longer. It has its own environment, for which Ray
keeps no idle process.
"""


class Ingress:
    """Text in, text out. The scheduler sees token IDs only."""

    def __init__(
        self,
        config: ServiceConfig,
        coordinators: Sequence[CoordinatorSpec],
        *replicas: DeploymentHandle[Any],
    ) -> None:
        """`replicas` take no requests. They are bound here to be part of the same application."""
        check_tls(config.tls.files)
        replica_id = serve.get_replica_context().replica_id.unique_id
        process = ProcessName(role=Part.INGRESS, id=replica_id)
        begin_replica_logs(
            process, config.telemetry.log_format, logs_requests=config.telemetry.request_log
        )
        self._tracing = begin_tracing(process)
        self._config = config
        self._access = Access(
            config.keys.named,
            config.host,
            allowed_hosts=config.web.allowed_hosts,
            metrics_key_digest=config.web.metrics_key_digest,
        )
        pace = ChunkPacing() if config.stream_interval is None else None
        pool = pool_of(coordinators, config.resume_timeout_s, pace)
        loop = asyncio.get_running_loop()
        self._pool_task = loop.create_task(pool.run())
        self._settled = loop.create_task(_settle(pool, coordinators, config))
        self._replaced = RedeployDetector(pool)
        self._look_task = loop.create_task(self._replaced.keep_looking())
        self._trim_task = loop.create_task(keep_trimming())
        text = text_model(config)
        begin_reading(text)
        self._service = GenerationService(
            text,
            pool,
            model_name=config.model_name,
            speculation=config.scheduler_config().speculation,
            sampling_defaults=text.sampling_defaults if config.uses_generation_config else None,
            trusts_chat_templates=config.trust_request_chat_template,
            stream_interval=config.stream_interval or 1,
            spans=request_spans(config, self._tracing),
            limits=RequestLimits(
                max_prompt_tokens=config.limits.max_prompt_tokens,
                max_output_tokens=config.limits.max_output_tokens,
                timeout_s=config.limits.request_timeout_s,
                max_prompt_chars=config.limits.max_prompt_chars,
                max_messages=config.limits.max_messages,
            ),
            grammar_limits=config.limits.grammar_limits,
        )
        self._grpc = GrpcApi(
            self._service, self._access, max_body_bytes=config.limits.max_body_bytes
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_http_app(
            self._service,
            self._access,
            max_body_bytes=self._config.limits.max_body_bytes,
            metrics=self._config.per_request_spec_decode_metrics,
            metrics_compat=self._config.metrics_compat,
            unknown_fields=self._config.unknown_fields,
            cors_origins=self._config.web.cors_origins,
            keep_alive_s=self._config.web.stream_keep_alive_s,
        )

    async def __del__(self) -> None:
        """End the streams. Serve awaits this at a graceful stop, when no request is left.

        The last target may leave once no ingress is there.
        """
        self._pool_task.cancel()
        await asyncio.wait([self._pool_task])
        await self._tracing.close()

    async def check_health(self) -> None:
        """Wait until the ingress has settled. With the first health check a start ends."""
        await asyncio.shield(self._settled)
        self._replaced.looks = 0
        if self._pool_task.done():
            raise RuntimeError("the streams to the coordinators have ended for good")

    async def Generate(
        self, message: pb.GenerateRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[pb.GenerateResponse]:
        async for response in self._grpc.generate(message, grpc_context):
            yield response

    async def GenerateOnce(
        self, message: pb.GenerateRequest, grpc_context: RayServegRPCContext
    ) -> pb.GenerateResponse:
        return await self._grpc.generate_once(message, grpc_context)

    async def Abort(
        self, message: pb.AbortRequest, grpc_context: RayServegRPCContext
    ) -> pb.AbortResponse:
        return await self._grpc.abort(message, grpc_context)

    async def Tokenize(
        self, message: pb.TokenizeRequest, grpc_context: RayServegRPCContext
    ) -> pb.TokenizeResponse:
        return await self._grpc.tokenize(message, grpc_context)

    async def Detokenize(
        self, message: pb.DetokenizeRequest, grpc_context: RayServegRPCContext
    ) -> pb.DetokenizeResponse:
        return await self._grpc.detokenize(message, grpc_context)

    async def ListModels(
        self, message: pb.ListModelsRequest, grpc_context: RayServegRPCContext
    ) -> pb.ListModelsResponse:
        return await self._grpc.list_models(message, grpc_context)

    async def Health(
        self, message: pb.HealthRequest, grpc_context: RayServegRPCContext
    ) -> pb.HealthResponse:
        return await self._grpc.health(message, grpc_context)

    async def PoolStatus(
        self, message: pb.PoolStatusRequest, grpc_context: RayServegRPCContext
    ) -> pb.PoolStatusResponse:
        return await self._grpc.pool_status(message, grpc_context)


def pool_of(
    coordinators: Sequence[CoordinatorSpec], resume_timeout_s: float, pace: ChunkPacing | None
) -> Pool:
    """Return the client of the only coordinator, or a router to all. Without `pace` nothing is
    held."""
    times = IngressTimes()
    clients = [
        SchedulerClient(
            Resolver(spec).resolve, resume_timeout_s=resume_timeout_s, times=times, pace=pace
        )
        for spec in coordinators
    ]
    if len(clients) == 1:
        return clients[0]
    # Requests move before their clients must retry.
    return CellRouter(clients, times, move_after_s=min(MOVE_AFTER_S, resume_timeout_s / 2))


async def _settle(
    pool: Pool, coordinators: Sequence[CoordinatorSpec], config: ServiceConfig
) -> None:
    """Wait for a target, if there are several ingresses.

    A redeploy replaces one ingress after the other. A new one counts once it can do what the next
    old one does, which Serve then stops.
    """

    async def has_begun() -> bool:
        begun = await asyncio.gather(*map(targets_begun, coordinators))
        return any(spec.version in of for spec, of in zip(coordinators, begun, strict=True))

    if config.scaling.ingress_replicas > 1:
        await first_target(pool, has_begun)


async def first_target(
    pool: Pool, has_begun: Callable[[], Awaitable[bool]], begins_s: float = _BEGINS_S
) -> None:
    """Return when some cell has a target, however long the target loads.

    Return as well if no target has begun to load after `begins_s`. If there is no room for old and
    new targets, the new ones start after the old ingresses have left.
    """
    loop = asyncio.get_running_loop()
    begins_by = loop.time() + begins_s
    while not pool.has_targets and (loop.time() < begins_by or await has_begun()):
        await asyncio.sleep(_TARGET_POLL_S)


class RedeployDetector:
    """Gives up requests that wait for a target, once Serve no longer checks the ingress's
    health."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.looks: int | None = None
        """Number of looks since Serve's last health check. None before the first check.

        Looks are counted instead of seconds, so that a pause of the process does not count as a
        redeploy.
        """

    async def keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        if self.looks is None:
            return
        self.looks += 1
        is_left_out = self.looks * _LOOK_S > _MISSED_CHECKS * HEALTH_CHECK_PERIOD_S
        if is_left_out and not self._pool.has_targets:
            self._pool.give_up(REPLACED)


def request_spans(config: ServiceConfig, tracing: Tracing) -> RequestSpans:
    """Return the spans of requests, with the attributes of the service."""
    attributes: dict[str, AttributeValue] = {
        names.ALGORITHM: "exspec",  # no other is served
        names.SPEC_METHOD: str(config.method),
        names.NUM_SPEC_TOKENS: config.max_draft_tokens,
    }
    return RequestSpans(tracing.tracer, model_name=config.model_name, attributes=attributes)


def begin_reading(text: TextModel) -> None:
    """Log how answers are read, and prepare it, so that no request waits for it."""
    if text.formats.problem is not None:
        logger.warning("%s", text.formats.warning)
    logger.info("answer formats chosen; %s", text.formats)
    if text.answers is not None:
        text.answers.compile()


def text_model(config: ServiceConfig) -> TextModel:
    """Return tokenizer and limits of the target. Raises ModelNotSupportedError."""
    return load_text_model(
        resolve_model(config.model),
        revision=config.loading.revision,
        chat_template=config.loading.chat_template,
        max_model_len=config.loading.max_model_len,
        special_tokens_in_text=config.special_tokens_in_text,
        tool_call_parser=config.tool_call_parser,
        reasoning_parser=config.reasoning_parser,
        max_template_seconds=config.limits.max_template_seconds,
    )
