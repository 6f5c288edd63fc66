"""Reads the outboxes of a coordinator, as its streams do."""

from __future__ import annotations

from typing import Any

from deployments.coordinator.streams import IngressOutbox, WorkOutbox
from deployments.errors import Failure
from deployments.wire.request_codec import event_from_pb
from specdec.v1 import coordination_pb2 as pb
from specdec_core.request import TokenEvent


def taken(outbox: IngressOutbox | WorkOutbox) -> Any:
    """Take what an outbox has now, with a loop or without. It must have something, or be closed."""
    try:
        outbox.take().send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the outbox has nothing")


def events_in(message: pb.GenerateDown | None) -> list[tuple[TokenEvent, Failure | None]]:
    return [] if message is None else [event_from_pb(event) for event in message.events]


def told(outbox: IngressOutbox) -> list[tuple[TokenEvent, Failure | None]]:
    """Take the events that an ingress has not read, with their failures."""
    return events_in(taken(outbox)) if outbox.has_items() else []
