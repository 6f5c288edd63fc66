"""Where a coordinator's server is, and the token that opens it."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

MESSAGE_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
"""Groups and resubmitted prompts may exceed gRPC's default of 4 MiB."""
TOKEN_KEY = "authorization"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Only who may talk to the coordinator's actor learns its token, a new one in every life."""

    address: str
    token: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_KEY, self.token),)

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.address, options=MESSAGE_OPTIONS)
