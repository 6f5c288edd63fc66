"""The gRPC services of Serve's proxies: ours, health checks and server reflection.

Reflection finds methods by name, too. Clients such as ghz ask for the file that contains a method.
The descriptor pool of protobuf finds files by their messages, enums and services alone, and so does
the reflection that Serve offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection

from deployments.proxy.grpc_errors import add_generation_service
from deployments.proxy.grpc_health import HEALTH, SERVICE, add_health


class MethodFindingPool:
    """The default descriptor pool with the lookup of a file by a method's name."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        """Return the file that defines `symbol`. Raises KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file


def add_reflection(server: Any, services: Sequence[str]) -> None:
    """Let `server`, the server of Serve's proxy, describe `services` without a replica."""
    server.add_passthrough_service(reflection.SERVICE_NAME)
    names = (*services, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=MethodFindingPool())


def add_services(servicer: Any, server: Any) -> None:
    """Add all services to `server`, the server of Serve's proxy.

    Serve calls this function by the name in grpc_options.grpc_servicer_functions. `servicer` only
    lends its methods' names: the server routes every call to an ingress replica.
    """
    add_generation_service(servicer, server)
    add_health(server)
    add_reflection(server, (SERVICE, HEALTH))
