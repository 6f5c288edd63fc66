"""Server reflection of Serve's gRPC server, as grpcurl and ghz use it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest.mock import Mock

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from deployments.proxy.grpc_services import add_services
from specdec.health import health_pb2
from specdec.v1 import generation_pb2
from tests.deployments.proxy.grpc_server import channel_to

GENERATION = "specdec.v1.GenerationService"
HEALTH = "grpc.health.v1.Health"
HEALTH_FILE = "grpc_health/v1/health.proto"
"""As in grpcio-health-checking: a process can import both only if the names are equal."""
Request, Response = (
    reflection_pb2.ServerReflectionRequest,
    reflection_pb2.ServerReflectionResponse,
)


def answers(requests: Sequence[Request]) -> list[Response]:
    async def ask() -> list[Response]:
        async with channel_to(Mock(), add_services) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            return [answer async for answer in stub.ServerReflectionInfo(iter(requests))]

    return asyncio.run(ask())


def files(answer: Response) -> list[str]:
    described = answer.file_descriptor_response.file_descriptor_proto
    return [FileDescriptorProto.FromString(one).name for one in described]


def test_all_services_are_listed() -> None:
    (answer,) = answers([Request(list_services="")])
    names = {service.name for service in answer.list_services_response.service}
    assert names == {GENERATION, HEALTH, "grpc.reflection.v1alpha.ServerReflection"}


def symbols() -> list[tuple[str, str]]:
    """Every service, method and message, with its file."""
    found = []
    for module in (generation_pb2, health_pb2):
        file = module.DESCRIPTOR
        for service in file.services_by_name.values():
            found.append((service.full_name, file.name))
            found += [(method.full_name, file.name) for method in service.methods]
        found += [(message.full_name, file.name) for message in file.message_types_by_name.values()]
    return found


def test_every_symbol_is_found_by_its_name() -> None:
    expected = symbols()
    assert (f"{GENERATION}.Generate", "specdec/v1/generation.proto") in expected
    assert (f"{HEALTH}.Check", HEALTH_FILE) in expected
    found = answers([Request(file_containing_symbol=symbol) for symbol, _ in expected])
    for (symbol, file), answer in zip(expected, found, strict=True):
        assert files(answer)[0] == file, symbol


@pytest.mark.parametrize("symbol", ["", "specdec.v1", f"{GENERATION}.generate", "Generate", "."])
def test_an_unknown_symbol_is_not_found(symbol: str) -> None:
    unknown, known = answers(
        [Request(file_containing_symbol=symbol), Request(file_containing_symbol=GENERATION)]
    )
    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert files(known), "the stream goes on"


def test_a_file_is_found_by_its_name() -> None:
    (answer,) = answers([Request(file_by_filename=HEALTH_FILE)])
    assert files(answer) == [HEALTH_FILE]
