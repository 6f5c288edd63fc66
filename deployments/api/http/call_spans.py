"""HTTP requests as spans."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from fastapi import Request
from fastapi.responses import Response

from deployments.api.http.responses import Shape
from deployments.ingress.generation import GenerationService
from deployments.observability.tracing import names
from deployments.observability.tracing.requests import Operation

Route: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


def traced(service: GenerationService, shape: Shape, call: Route) -> Route:
    """Return `call` within the span of its request to `service`."""
    operation = Operation.CHAT if shape.is_chat else Operation.TEXT

    async def route(request: Request) -> Response:
        attributes = {names.HTTP_METHOD: request.method, names.HTTP_ROUTE: request.url.path}
        with service.spans.of(
            operation, request.headers, attributes, id_prefix=f"{shape.id_prefix}-"
        ):
            return await call(request)

    return route
