"""Spans of GenerationService calls."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from deployments.observability.tracing import names
from deployments.observability.tracing.requests import Operation, RequestSpans
from specdec.v1 import generation_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["GenerationService"].full_name


def traced(
    spans: RequestSpans,
    method: str,
    message: pb.GenerateRequest,
    metadata: Iterable[tuple[str, str]],
) -> AbstractContextManager[None]:
    """Return a context manager for the span of one call."""
    is_chat = message.WhichOneof("input") == "chat"
    attributes = {
        names.RPC_SYSTEM: "grpc",
        names.RPC_SERVICE: _SERVICE,
        names.RPC_METHOD: method,
    }
    carrier = {key.lower(): value for key, value in metadata}
    return spans.of(Operation.CHAT if is_chat else Operation.TEXT, carrier, attributes)
