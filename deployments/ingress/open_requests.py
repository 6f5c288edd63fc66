"""The open requests of an ingress, and the joining of their streams after a break.

Nothing here does I/O.

Every token event carries the index of its first token. Tokens that the client already has are
compared, then dropped. If an event leaves a gap, the ingress asks again, from the first token that
the client lacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deployments.ingress.cells.client import OnAccepted
from deployments.observability.json_logs import about
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request, TokenEvent

if TYPE_CHECKING:
    from specdec.v1 import coordination_pb2 as pb

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class OpenRequest:
    """A request that has not ended, and the tokens that its client has."""

    request: Request
    was_sent: bool
    """Whether a coordinator may know the request and continues it. It went to another cell, or to a
    stream, which may break before the request arrives."""
    trace: pb.TraceContext | None = None
    """The span that the request belongs to, if it is traced."""
    on_accepted: OnAccepted | None = None
    events: asyncio.Queue[TokenEvent | Exception] = field(default_factory=asyncio.Queue)
    """Events that the client has not read yet, or the error that ended the request."""
    emitted: list[int] = field(default_factory=list)
    pinned_fingerprint: str = ""
    """Numerics fingerprint of the exact targets that chose the emitted tokens; see Request."""

    def resumed(self) -> Request:
        """Return the request in the form in which another coordinator can continue it."""
        emitted = (*self.request.emitted_token_ids, *self.emitted)
        pinned = self.pinned_fingerprint or self.request.pinned_fingerprint
        return replace(self.request, emitted_token_ids=emitted, pinned_fingerprint=pinned)


def parted(event: TokenEvent, count: int) -> tuple[TokenEvent, ...]:
    """Split an event that has tokens on both sides of the answer's first `count` tokens.

    Return two events: the end of the tokens that the client has, and the tokens that are new to it.
    Any other event is returned unchanged.
    """
    first = count - event.index
    if not 0 < first < len(event.token_ids):
        return (event,)
    return (
        event._replace(
            token_ids=event.token_ids[:first],
            logprobs=event.logprobs[:first],
            finish_reason=None,
        ),
        event._replace(
            index=count,
            token_ids=event.token_ids[first:],
            logprobs=event.logprobs[first:],
            prompt_logprobs=(),
        ),
    )


class OpenRequests:
    """The open requests of one ingress, by request ID."""

    def __init__(self, on_divergence: Callable[[], None] = lambda: None) -> None:
        self._on_divergence = on_divergence
        self.num_divergences = 0
        """Resumed requests whose replayed tokens differed from those already emitted."""
        self._open: dict[str, OpenRequest] = {}

    def get(self, request_id: str) -> OpenRequest | None:
        """Return a request, or None if no client waits for it."""
        return self._open.get(request_id)

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, entry: OpenRequest) -> None:
        """Add an open request."""
        request_id = entry.request.request_id
        if request_id in self._open:
            raise InvalidRequestError(f"request_id {request_id!r} is in use", param="request_id")
        self._open[request_id] = entry

    def accept(self, request_id: str) -> None:
        """Note that a coordinator has queued a request. Unknown requests are ignored."""
        entry = self._open.get(request_id)
        if entry is not None and entry.on_accepted is not None:
            entry.on_accepted(request_id)

    def end(self, entry: OpenRequest) -> bool:
        """Drop a request for which no client waits any more. Return False if it was not open. A
        later request may have its ID."""
        request_id = entry.request.request_id
        if self._open.get(request_id) is not entry:
            return False
        del self._open[request_id]
        return True

    def release(self, request_id: str) -> OpenRequest:
        """Drop a request, as `end` does, and return it."""
        return self._open.pop(request_id)

    def end_all(self) -> list[OpenRequest]:
        """Drop all open requests, and return them."""
        entries = list(self._open.values())
        self._open.clear()
        return entries

    def resumed(self) -> list[Request]:
        """Return the open requests in the form in which another coordinator can continue them."""
        return [entry.resumed() for entry in self._open.values()]

    def send_all(self) -> list[tuple[OpenRequest, bool]]:
        """Return what to submit to a coordinator that knows no request yet.

        Each request comes with whether it was sent before. From now on, all count as sent.
        """
        sent = [(entry, entry.was_sent) for entry in self._open.values()]
        for entry in self._open.values():
            entry.was_sent = True
        return sent

    def take(self, entry: OpenRequest, event: TokenEvent) -> TokenEvent | None:
        """Return the part of an open request's event that is new to the client.

        Return None if the event leaves a gap or has other tokens than the client. Then the request
        must be submitted again.
        """
        overlap = len(entry.request.emitted_token_ids) + len(entry.emitted) - event.index
        if overlap != 0 or event.prompt_logprobs:  # rarely
            new_part = self._new_part(entry, event, overlap)
            if new_part is None:
                return None
            event = new_part
        entry.emitted += event.token_ids
        if event.pinned_fingerprint:
            entry.pinned_fingerprint = event.pinned_fingerprint
        if event.finish_reason is not None:
            del self._open[event.request_id]
        return event

    def _new_part(self, entry: OpenRequest, event: TokenEvent, overlap: int) -> TokenEvent | None:
        """Return `event` without its first tokens, which the client has. None if it has others, or
        if tokens are missing."""
        if not 0 <= overlap <= len(entry.emitted):
            return None
        known = tuple(entry.emitted[len(entry.emitted) - overlap :])
        replayed = event.token_ids[:overlap]
        if replayed != known[: len(replayed)]:
            self.num_divergences += 1
            self._on_divergence()
            logger.error(
                "request %s diverged when it was replayed",
                event.request_id,
                extra=about(event.request_id),
            )
            return None
        is_first = not entry.request.emitted_token_ids and not entry.emitted
        return event._replace(
            index=event.index + len(replayed),
            token_ids=event.token_ids[overlap:],
            logprobs=event.logprobs[overlap:],
            prompt_logprobs=event.prompt_logprobs if is_first else (),
        )
