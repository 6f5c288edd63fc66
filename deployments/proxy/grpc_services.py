"""The gRPC services of Serve's proxies: ours, health checks and server reflection."""

from __future__ import annotations

from typing import Any

from deployments.proxy.grpc_errors import add_generation_service
from deployments.proxy.grpc_health import HEALTH, SERVICE, add_health
from deployments.proxy.grpc_reflection import add_reflection


def add_services(servicer: Any, server: Any) -> None:
    """Add all services to `server`, the server of Serve's proxy.

    Serve calls this function by the name in grpc_options.grpc_servicer_functions. `servicer` only
    lends its methods' names: the server routes every call to an ingress replica.
    """
    add_generation_service(servicer, server)
    add_health(server)
    add_reflection(server, (SERVICE, HEALTH))
