"""What the bodies and the message of gRPC ask for."""

from __future__ import annotations

from deployments.api.grpc.requests import request_of
from deployments.api.http.schemas import ChatBody, CompletionBody
from specdec.v1 import generation_pb2 as pb


def test_a_cache_salt_is_passed_on_in_both_protocols() -> None:
    common = {"model": "m", "cache_salt": "tenant 7"}
    bodies = (
        CompletionBody(prompt="x", **common),
        ChatBody(messages=[{"role": "user", "content": "x"}], **common),
    )
    assert [body.to_request().cache_salt for body in bodies] == ["tenant 7"] * 2
    assert (
        request_of(pb.GenerateRequest(prompt="x", cache_salt="tenant 7")).cache_salt == "tenant 7"
    )
    assert CompletionBody(prompt="x").to_request().cache_salt == ""
