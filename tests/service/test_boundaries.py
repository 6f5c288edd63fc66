"""What is around the processes of a running service: Ray's token, TLS on their streams."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest
import ray
from ray._raylet import AuthenticationTokenLoader

from deployments.app import coordinator_spec
from deployments.wire.endpoint import Endpoint
from tests.deployments.tls.test_tls_cell import asked
from tests.service.conftest import Service

pytestmark = pytest.mark.slow

OK, REFUSED = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


def code_of(address: str, method: str, headers: dict[str, str]) -> grpc.StatusCode:
    """How an empty request to one of Ray's own services ends."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(method)
        try:
            call(b"", timeout=30, metadata=tuple(headers.items()))
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
            return code
    return OK


def test_nobody_speaks_to_ray_without_the_token(service: Service) -> None:
    (node,) = ray.nodes()
    raylet = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    services = (
        (ray.get_runtime_context().gcs_address, "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"),
        (raylet, "/ray.rpc.NodeManagerService/GetNodeStats"),
    )
    own = AuthenticationTokenLoader.instance().get_token_for_http_header()
    guessed = {name: value[:-8] + "deadbeef" for name, value in own.items()}
    for address, method in services:
        assert code_of(address, method, own) is OK
        assert code_of(address, method, guessed) is REFUSED
        assert code_of(address, method, {}) is REFUSED


def test_the_coordinator_hears_nobody_without_a_certificate(service: Service) -> None:
    """Not even with its token."""
    actor = ray.get_actor(coordinator_spec(service.config).actor_name, namespace="specdec")
    endpoint: Endpoint = ray.get(actor.endpoint.remote())
    assert endpoint.tls == service.config.tls.files
    assert asyncio.run(asked(endpoint)) is OK
    assert asyncio.run(asked(replace(endpoint, tls=None))) is grpc.StatusCode.UNAVAILABLE
