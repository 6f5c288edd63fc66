"""The standard health service of Serve's gRPC server, without Ray."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from ray.serve.generated.serve_pb2 import HealthzResponse

from deployments.proxy import grpc_health
from deployments.proxy.grpc_health import HEALTH, SERVICE
from deployments.proxy.grpc_services import add_services
from deployments.proxy.http_middleware import STAYS_READY_S
from specdec.health import health_pb2 as health
from specdec.v1 import generation_pb2 as pb
from tests.deployments.proxy.grpc_server import channel_to

SERVING, NOT_SERVING, SERVICE_UNKNOWN = (
    health.HealthCheckResponse.SERVING,
    health.HealthCheckResponse.NOT_SERVING,
    health.HealthCheckResponse.SERVICE_UNKNOWN,
)
NAMES = ("", SERVICE)
DENIED = "this server answers local callers only: start it with --host"


class Proxy:
    """Serve's proxy with one ingress replica, of which a test sets the answers."""

    def __init__(self) -> None:
        self.is_drained = False
        self.ready = True
        self.code: grpc.StatusCode | None = None
        """That of the ingress, or of Serve when there is none."""
        self.hangs = False
        """As Serve's proxy while no replica is there."""

    def factory(self, service_method: str, streaming_type: Any) -> Callable[..., Any]:
        async def proxy_health(request: Any, context: Any) -> bytes:
            code = grpc.StatusCode.UNAVAILABLE if self.is_drained else grpc.StatusCode.OK
            context.set_code(code)
            return HealthzResponse().SerializeToString()

        async def ingress_health(request: pb.HealthRequest, context: Any) -> bytes:
            assert isinstance(request, pb.HealthRequest)
            if self.hangs:
                await asyncio.Event().wait()
            if self.code is not None:
                context.set_code(self.code)
                context.set_details(DENIED)
                return b""
            return pb.HealthResponse(ready=self.ready).SerializeToString()

        if service_method == "/ray.serve.RayServeAPIService/Healthz":
            return proxy_health
        return ingress_health


class Client:
    """What health checkers call."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        check = health.HealthCheckRequest.SerializeToString
        checked = health.HealthCheckResponse.FromString
        self.check_call = channel.unary_unary(f"/{HEALTH}/Check", check, checked)
        self.watch_call = channel.unary_stream(f"/{HEALTH}/Watch", check, checked)
        self.list_call = channel.unary_unary(
            f"/{HEALTH}/List",
            health.HealthListRequest.SerializeToString,
            health.HealthListResponse.FromString,
        )

    async def check(self, service: str = "") -> int:
        answer = await self.check_call(health.HealthCheckRequest(service=service), timeout=20)
        return answer.status

    async def list(self) -> dict[str, int]:
        answer = await self.list_call(health.HealthListRequest(), timeout=20)
        return {name: entry.status for name, entry in answer.statuses.items()}

    def watch(self, service: str = "") -> Any:
        return self.watch_call(health.HealthCheckRequest(service=service))


@contextlib.asynccontextmanager
async def checked() -> AsyncIterator[tuple[Proxy, Client]]:
    """A proxy that serves, and a client that checks its health."""
    proxy = Proxy()
    async with channel_to(proxy.factory, add_services) as channel:
        yield proxy, Client(channel)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_health, "ANSWER_S", 0.3)
    monkeypatch.setattr(grpc_health, "WATCH_S", 0.05)


async def test_it_is_as_ready_as_the_ingress() -> None:
    async with checked() as (proxy, client):
        for proxy.ready, status in ((True, SERVING), (False, NOT_SERVING), (True, SERVING)):
            assert [await client.check(name) for name in NAMES] == [status] * 2
            assert await client.list() == dict.fromkeys(NAMES, status)


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.NOT_FOUND,  # no application yet
        grpc.StatusCode.UNAVAILABLE,  # the deployment failed
        grpc.StatusCode.INTERNAL,  # the replica died
        grpc.StatusCode.CANCELLED,
    ],
)
async def test_without_an_ingress_it_is_not_serving(code: grpc.StatusCode) -> None:
    async with checked() as (proxy, client):
        proxy.code = code
        assert await client.check() == NOT_SERVING
        assert set((await client.list()).values()) == {NOT_SERVING}


async def test_it_does_not_wait_for_a_replica_to_come() -> None:
    async with checked() as (proxy, client):
        proxy.hangs = True
        async with asyncio.timeout(10):
            assert await client.check(SERVICE) == NOT_SERVING
            watch = client.watch()
            assert (await watch.read()).status == NOT_SERVING
        proxy.hangs = False
        assert (await watch.read()).status == SERVING


async def test_an_unknown_service() -> None:
    async with checked() as (_, client):
        for name in ("GenerationService", "specdec.v1.generationservice", SERVICE + "/Generate"):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await client.check(name)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
            assert name in (error.value.details() or "")
            assert SERVICE in (error.value.details() or "")
            watch = client.watch(name)
            assert (await watch.read()).status == SERVICE_UNKNOWN
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.read(), 0.3)


async def test_a_watch_tells_each_change_once() -> None:
    async with checked() as (proxy, client):
        watch = client.watch(SERVICE)
        assert (await watch.read()).status == SERVING
        waiting = asyncio.ensure_future(watch.read())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        proxy.ready = False
        assert (await waiting).status == NOT_SERVING
        proxy.ready = True
        assert (await watch.read()).status == SERVING
        proxy.code = grpc.StatusCode.INTERNAL
        assert (await watch.read()).status == NOT_SERVING


async def test_a_drained_proxy_stops_serving_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert STAYS_READY_S > 0.5
    monkeypatch.setattr("deployments.proxy.http_middleware.STAYS_READY_S", 0.5)
    async with checked() as (proxy, client):
        proxy.is_drained = True
        assert await client.check() == SERVING
        await asyncio.sleep(0.6)
        assert await client.check() == NOT_SERVING
        proxy.is_drained = False
        assert await client.check() == SERVING


async def test_a_client_that_may_not_ask_is_refused() -> None:
    async with checked() as (proxy, client):
        proxy.code = grpc.StatusCode.PERMISSION_DENIED
        for call in (client.check(), client.list(), client.watch().read()):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call
            assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert error.value.details() == DENIED
