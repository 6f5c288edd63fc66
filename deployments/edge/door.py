"""How many requests may wait in a proxy for an ingress, and how the next one is refused.

Python keeps of a burst 50 to 80 KiB for each request that a proxy had at a time. By itself Serve
lets any number wait, refuses in plain text, and over gRPC does not say when to come back.
"""

from __future__ import annotations

import random
from typing import Any

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from deployments.errors import ProxyFullError

BEGINNING = "Request dropped due to backpressure"
"""So begins what Serve says of it."""
_STATUS_DETAILS = "grpc-status-details-bin"
_SOONEST_S, _LATEST_S = 5.0, 15.0
"""A full proxy is empty after some ten seconds; not all shall be back in the same one."""


def door_options(num_taken: int) -> dict[str, Any]:
    """Of the ingress deployment: a burst that the pools have room for is never refused here."""
    config = {"status_code": 429, "retry_after_s": _LATEST_S}
    return {"max_queued_requests": num_taken, "backpressure_config": config}


def proxy_full() -> ProxyFullError:
    return ProxyFullError(round(random.uniform(_SOONEST_S, _LATEST_S)))


def say_when(context: Any) -> None:
    """Over gRPC, as google.rpc says it. `context` has its code."""
    error = proxy_full()
    number, _ = grpc.StatusCode.RESOURCE_EXHAUSTED.value
    delay = duration_pb2.Duration(seconds=error.retry_after_s)
    told = status_pb2.Status(code=number, message=str(error))
    told.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    own = (_STATUS_DETAILS, told.SerializeToString())
    context.set_details(str(error))
    context.set_trailing_metadata((*(context.trailing_metadata() or ()), own))
