"""How errors are worded outside: one table from exception to HTTP status and gRPC code.

Whatever is not in the table is ours: the client learns that it failed and nothing of how.
"""

from __future__ import annotations

from typing import NamedTuple

import grpc

from deployments.errors import (
    BodyTooLargeError,
    ClientLimitError,
    DeadlineError,
    FingerprintError,
    ForbiddenError,
    PoolUnavailableError,
    RequestFailedError,
    UnauthorizedError,
    UnknownModelError,
    WrongTypeError,
)
from specdec_core.errors import InvalidRequestError, ModelNotSupportedError, QueueFullError


class Status(NamedTuple):
    """How an error is worded in both protocols."""

    http: int
    code: grpc.StatusCode
    kind: str
    """OpenAI's `type` of the error."""


_INTERNAL = Status(500, grpc.StatusCode.INTERNAL, "internal_error")

_TABLE: dict[type[Exception], Status] = {
    InvalidRequestError: Status(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error"),
    ModelNotSupportedError: Status(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error"),
    WrongTypeError: Status(422, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error"),
    UnauthorizedError: Status(401, grpc.StatusCode.UNAUTHENTICATED, "authentication_error"),
    ForbiddenError: Status(403, grpc.StatusCode.PERMISSION_DENIED, "permission_error"),
    UnknownModelError: Status(404, grpc.StatusCode.NOT_FOUND, "not_found_error"),
    DeadlineError: Status(408, grpc.StatusCode.DEADLINE_EXCEEDED, "timeout_error"),
    FingerprintError: Status(409, grpc.StatusCode.FAILED_PRECONDITION, "conflict_error"),
    BodyTooLargeError: Status(413, grpc.StatusCode.RESOURCE_EXHAUSTED, "invalid_request_error"),
    ClientLimitError: Status(429, grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limit_error"),
    QueueFullError: Status(429, grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limit_error"),
    RequestFailedError: Status(500, grpc.StatusCode.INTERNAL, "internal_error"),
    PoolUnavailableError: Status(503, grpc.StatusCode.UNAVAILABLE, "service_unavailable_error"),
}


def status_of(error: BaseException) -> Status:
    """The status a client gets for `error`."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            return _TABLE[kind]
    return _INTERNAL


def public_message(error: BaseException) -> str:
    """What a client may read of `error`: nothing of an error that is not in the table."""
    if status_of(error) is _INTERNAL:
        return "internal error"
    return str(error)
