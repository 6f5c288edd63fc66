"""Whatever message comes over gRPC: never INTERNAL, never UNKNOWN, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.v1 import generation_pb2 as pb
from specdec_core.messages import ReplicaInfo, Role
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.ingress.test_grpc_api import FakeContext, api

MAX_MODEL_LEN = 128
"""More than any prompt that can be answered and what it asks for at most."""
DEPTH = 3
"""Levels of messages within a drawn one. Half of all have none, so that enough are answered."""
BROKEN = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
_EDGES = (0, 1, -1, 2, 3, 7, 49, 50, 2**31 - 1, -(2**31))
_INTEGERS = st.sampled_from(_EDGES) | st.integers(-9, 60)
_LONGS = _INTEGERS | st.sampled_from([2**63 - 1, -(2**63)])
_FLOATS = st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0, 101.0]) | st.floats()
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: _INTEGERS,
    FieldDescriptor.CPPTYPE_INT64: _LONGS,
    FieldDescriptor.CPPTYPE_UINT32: st.integers(1, 50).map(lambda n: 1000 * n),
    FieldDescriptor.CPPTYPE_DOUBLE: _FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_STRING: st.text(max_size=6)
    | st.sampled_from(["fake", "HELLO", "ngram", "user", "a+", '{"type": "object"}']),
}


def messages(descriptor: Descriptor, depth: int = DEPTH) -> st.SearchStrategy[dict[str, Any]]:
    """Fields by name, as the message's constructor takes them; of a oneof at most one."""
    free = [f for f in descriptor.fields if f.containing_oneof is None or _is_optional(f)]
    some = st.fixed_dictionaries(
        {}, optional={f.name: s for f in free if (s := _values(f, depth)) is not None}
    )
    for group in descriptor.oneofs:
        choices = [
            st.fixed_dictionaries({f.name: s})
            for f in group.fields
            if not _is_optional(f) and (s := _values(f, depth)) is not None
        ]
        if choices:
            some = st.builds(lambda a, b: a | b, some, st.just({}) | st.one_of(choices))
    return some


def _is_optional(field: FieldDescriptor) -> bool:
    """A field that says `optional` stands in a oneof of its own."""
    return field.containing_oneof is not None and field.containing_oneof.name == f"_{field.name}"


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any] | None:
    if field.message_type is None:
        value = _SCALARS[field.cpp_type]
    elif field.message_type.GetOptions().map_entry:
        key, entry = field.message_type.fields
        return st.dictionaries(_SCALARS[key.cpp_type], _SCALARS[entry.cpp_type], max_size=3)
    elif depth == 0:
        return None
    else:
        value = messages(field.message_type, depth - 1)
    return st.lists(value, max_size=3) if field.is_repeated else value


class _Loop(threading.Thread):
    """An event loop in which the API lives, for calls from the test's own thread."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        self.loop.run_forever()

    def wait(self, work: Awaitable[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def loop() -> Iterator[_Loop]:
    thread = _Loop()
    thread.start()
    yield thread
    thread.loop.call_soon_threadsafe(thread.loop.stop)
    thread.join(10)


class _ShortTarget(FakeReplica):
    """Who names no max_tokens is answered until the context is full, one step for each token."""

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return replace(super().info(replica_id, incarnation), max_model_len=MAX_MODEL_LEN)


@pytest.fixture(scope="module")
def calls(loop: _Loop) -> Iterator[Any]:
    server = api(target=_ShortTarget(Role.TARGET))
    yield loop.wait(server.__aenter__())
    loop.wait(server.__aexit__(None, None, None))


def _checked(kind: Callable[..., Message], fields: dict[str, Any]) -> Message | None:
    """None for what no protobuf library can send."""
    try:
        return kind(**fields)
    except (ValueError, TypeError, UnicodeEncodeError):
        return None


@pytest.mark.parametrize("num_messages", [600, pytest.param(4000, marks=pytest.mark.nightly)])
def test_no_message_breaks_the_service(loop: _Loop, calls: Any, num_messages: int) -> None:
    service, parts = calls
    codes: Counter[grpc.StatusCode | None] = Counter()

    @settings(
        max_examples=num_messages,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(messages(pb.GenerateRequest.DESCRIPTOR) | messages(pb.GenerateRequest.DESCRIPTOR, 0))
    def check(fields: dict[str, Any]) -> None:
        message = _checked(pb.GenerateRequest, fields)
        if message is None:
            return
        message.ClearField("model")  # most names are unknown, and nothing else is looked at then
        context = FakeContext()
        loop.wait(service.generate_once(message, context))
        assert context.code not in BROKEN, (fields, context.details)
        codes[context.code] += 1

    check()
    assert codes.total() > 0.9 * num_messages
    assert codes[None] > 0.02 * num_messages, "some are answered"
    assert codes[grpc.StatusCode.INVALID_ARGUMENT] > 0.1 * num_messages
    loop.wait(_settled(parts))


async def _settled(parts: Any) -> None:
    while parts.driver.scheduler.has_work or parts.replicas["t0"].num_slots:
        await asyncio.sleep(0.005)
