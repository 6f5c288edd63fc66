"""The hook that Serve calls in each of its HTTP proxies before it listens.

RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names `guard`. Serve has no other way to choose uvicorn's
protocol, its limits or those of its gRPC server.
"""

from __future__ import annotations

import asyncio

from starlette.middleware import Middleware
from uvicorn import config
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from deployments.proxy.grpc_guard import make_grpc_patient
from deployments.proxy.http_middleware import ProxyAnswers
from deployments.runtime.memory import keep_trimming

_GUARDED = "deployments.proxy.http_guard:GuardedHttp"

_tasks: list[asyncio.Task[None]] = []
"""References to tasks, because a loop keeps no task alive."""


def guard() -> list[Middleware]:
    """Guard what this process serves from now on. Return the middleware.

    The guard acts below the middleware, which sees a request only when its headers are complete.
    The middleware reports that a replica died, or that this node's proxy is about to go.
    """
    make_grpc_patient()
    if AutoHTTPProtocol is HttpToolsProtocol:
        config.HTTP_PROTOCOLS["auto"] = _GUARDED
    _tasks.append(asyncio.get_event_loop().create_task(keep_trimming()))
    return [Middleware(ProxyAnswers)]
