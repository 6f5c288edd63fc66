"""Records that request observers get, for tests that call one by hand."""

from __future__ import annotations

from typing import Any

from deployments.errors import failure_of_event
from deployments.observability.request_observer import EndReason, LiveRequest, RequestEnd
from specdec_core.request import FinishReason, Request, TokenEvent

LEFT = RequestEnd(EndReason.DISCONNECTED, 0.0)


def live(request: Request, **fields: Any) -> LiveRequest:
    return LiveRequest(**{"request": request, "sequence_id": 1, "began_s": 0.0} | fields)


def end_of(event: TokenEvent) -> RequestEnd:
    """The end of a request whose last event is `event`."""
    is_error = event.finish_reason is FinishReason.ERROR
    return RequestEnd(EndReason.FINISHED, 0.0, event, failure_of_event(event) if is_error else None)
