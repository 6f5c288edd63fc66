"""How errors are worded outside: one table from exception to HTTP status and gRPC code.

Whatever is not in the table is ours: the client learns that it failed and nothing of how.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc

from deployments.errors import (
    BodyTooLargeError,
    ClientLimitError,
    DeadlineError,
    FingerprintError,
    ForbiddenError,
    MediaTypeError,
    PoolUnavailableError,
    RequestFailedError,
    UnauthorizedError,
    UnknownModelError,
)
from specdec_core.errors import (
    InvalidRequestError,
    ModelNotSupportedError,
    QueueFullError,
    SpecdecError,
)


class Status(NamedTuple):
    """How an error is worded in both protocols."""

    http: int
    code: grpc.StatusCode
    kind: str
    """OpenAI's `type` of the error."""
    name: str
    """OpenAI's `code` of the error, for errors that carry none themselves."""


_C = grpc.StatusCode
_INTERNAL = Status(500, _C.INTERNAL, "internal_error", "internal_error")
_INVALID = Status(400, _C.INVALID_ARGUMENT, "invalid_request_error", "invalid_value")
_RATE = Status(429, _C.RESOURCE_EXHAUSTED, "rate_limit_error", "rate_limit_exceeded")

_TABLE: dict[type[Exception], Status] = {
    InvalidRequestError: _INVALID,
    ModelNotSupportedError: _INVALID._replace(name="model_not_supported"),
    UnauthorizedError: Status(401, _C.UNAUTHENTICATED, "authentication_error", "invalid_api_key"),
    ForbiddenError: Status(403, _C.PERMISSION_DENIED, "permission_error", "address_not_allowed"),
    UnknownModelError: Status(404, _C.NOT_FOUND, "not_found_error", "model_not_found"),
    DeadlineError: Status(408, _C.DEADLINE_EXCEEDED, "timeout_error", "timeout"),
    FingerprintError: Status(409, _C.FAILED_PRECONDITION, "conflict_error", "fingerprint_mismatch"),
    BodyTooLargeError: Status(
        413, _C.RESOURCE_EXHAUSTED, "invalid_request_error", "request_too_large"
    ),
    MediaTypeError: Status(
        415, _C.INVALID_ARGUMENT, "invalid_request_error", "unsupported_media_type"
    ),
    ClientLimitError: _RATE,
    QueueFullError: _RATE,
    RequestFailedError: _INTERNAL._replace(name="request_failed"),
    PoolUnavailableError: Status(
        503, _C.UNAVAILABLE, "service_unavailable_error", "service_unavailable"
    ),
}


_MAX_MESSAGE, _MAX_PARAM = 1_500, 200
"""Maximum bytes. Trailers of gRPC have room for 8 KB and carry a message twice, percent-encoded and
in base64. A client that gets more sees RESOURCE_EXHAUSTED in place of the error."""


class PublicError(NamedTuple):
    """The parts of an error that a client reads; nothing of an error that is not in the table."""

    message: str
    kind: str
    param: str
    """Empty if no single field is wrong."""
    code: str


def status_of(error: BaseException) -> Status:
    """Return the status that a client gets for `error`."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            return _TABLE[kind]
    return _INTERNAL


def public_error(error: BaseException) -> PublicError:
    """Return what a client may read of `error`."""
    status = status_of(error)
    if status is _INTERNAL or not isinstance(error, SpecdecError):
        return PublicError("internal error", status.kind, "", status.name)
    code = error.code if isinstance(error, InvalidRequestError) else status.name
    message = _shortened(str(error), _MAX_MESSAGE)
    return PublicError(message, status.kind, _shortened(error.param, _MAX_PARAM), code)


def _shortened(text: str, num_bytes: int) -> str:
    """Return `text`, without its middle if it is longer. Its end tells the fix."""
    raw = text.encode(errors="replace")
    if len(raw) <= num_bytes:
        return text
    head, tail = raw[: num_bytes * 2 // 3], raw[-num_bytes // 3 :]
    return f"{head.decode(errors='ignore')} ... {tail.decode(errors='ignore')}"


def error_body(error: BaseException) -> dict[str, Any]:
    """Return `error` in OpenAI's JSON shape."""
    told = public_error(error)
    return {
        "error": {
            "message": told.message,
            "type": told.kind,
            "param": told.param or None,
            "code": told.code,
        }
    }
