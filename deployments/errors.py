"""Errors outside the engine, and the way of a failure across the coordinator's stream."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specdec_core.errors import InvalidRequestError, QueueFullError, SpecdecError, TryAgainError
from specdec_core.request import ErrorKind, Request, TokenEvent

_RETURN_S = 1.0
"""Seconds after which to ask again for a coordinator or replica that is away."""


class UnknownModelError(SpecdecError):
    """The request names a model that is not served."""

    param = "model"


class FingerprintError(SpecdecError):
    """The answer to resume was begun by another model or other numerics."""

    param = "resume.system_fingerprint"


class WrongTypeError(InvalidRequestError):
    """A field of the request has another type than it should."""

    def __init__(self, message: str, *, param: str = "") -> None:
        super().__init__(message, param=param, code="invalid_type")


class ContextLengthError(InvalidRequestError):
    """The prompt, or it and the answer, have more tokens than the model can read.

    The words are those by which clients such as LangChain and LiteLLM recognize this error.
    """

    def __init__(self, problem: str, max_model_len: int, fix: str, *, param: str) -> None:
        limit = f"this model's maximum context length is {max_model_len} tokens"
        code = "context_length_exceeded"
        super().__init__(f"{problem}, and {limit}: {fix}", param=param, code=code)


class UnauthorizedError(SpecdecError):
    """The API key is missing or wrong."""


class ForbiddenError(SpecdecError):
    """The caller's address may not use this server."""


class MediaTypeError(SpecdecError):
    """The body has a content type or a coding that the server does not read."""


class BodyTooLargeError(SpecdecError):
    """The request is larger than the server reads."""


class ClientLimitError(TryAgainError):
    """The caller has as much running, or has sent as much, as its key allows."""


class DeadlineError(SpecdecError):
    """The request's own deadline passed."""


class PoolUnavailableError(TryAgainError):
    """The coordinator or every replica is away."""

    def __init__(self, message: str) -> None:
        super().__init__(message, _RETURN_S)


class RequestFailedError(SpecdecError):
    """The request was fine, but running it failed. The message is fit for the client."""


class ReleasedError(SpecdecError):
    """A request was taken from its cell and can continue in another. No client ever sees this."""

    def __init__(self, request: Request, *, was_sent: bool) -> None:
        """`was_sent`: its cell may have admitted the request, which need not be admitted again."""
        super().__init__(f"request {request.request_id} was released")
        self.request = request
        self.was_sent = was_sent


class FailureKind(StrEnum):
    """Kind of failure that ended a request in the scheduler."""

    INVALID_REQUEST = "invalid_request"
    QUEUE_FULL = "queue_full"
    CLIENT_LIMIT = "client_limit"
    ROW_FAILED = "row_failed"
    POOL_FAILED = "pool_failed"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why the scheduler ended a request, in the form that crosses the coordinator's
    stream."""

    kind: FailureKind
    message: str
    retry_after_s: float = 0.0
    num_queued: int = 0
    max_queued: int = 0
    param: str = ""
    """The wrong field and the error code, with INVALID_REQUEST; see InvalidRequestError."""
    code: str = ""


def failure_of(error: Exception) -> Failure:
    """Return the failure for `error`, which the scheduler raised."""
    if isinstance(error, QueueFullError):
        return Failure(
            kind=FailureKind.QUEUE_FULL,
            message=str(error),
            retry_after_s=error.retry_after_s,
            num_queued=error.num_queued,
            max_queued=error.limit,
        )
    if isinstance(error, ClientLimitError):
        return Failure(
            kind=FailureKind.CLIENT_LIMIT, message=str(error), retry_after_s=error.retry_after_s
        )
    if isinstance(error, InvalidRequestError):
        return Failure(
            kind=FailureKind.INVALID_REQUEST,
            message=str(error),
            param=error.param,
            code=error.code,
        )
    return Failure(kind=FailureKind.POOL_FAILED, message="the pool failed; try again")


_KINDS = {
    ErrorKind.FAILED: FailureKind.ROW_FAILED,
    ErrorKind.RETRYABLE: FailureKind.POOL_FAILED,
    ErrorKind.INVALID: FailureKind.INVALID_REQUEST,
    ErrorKind.TIMEOUT: FailureKind.DEADLINE,
}


def failure_of_event(event: TokenEvent) -> Failure:
    """Return the failure of a request that the scheduler ended with an error."""
    return Failure(kind=_KINDS[event.error_kind], message=event.error or "failed")


def error_of(failure: Failure) -> SpecdecError:
    """Return the exception to raise for a failure that came over the stream."""
    if failure.kind is FailureKind.QUEUE_FULL:
        return QueueFullError(failure.num_queued, failure.max_queued, failure.retry_after_s)
    if failure.kind is FailureKind.CLIENT_LIMIT:
        return ClientLimitError(failure.message, failure.retry_after_s)
    if failure.kind is FailureKind.INVALID_REQUEST:
        return InvalidRequestError(
            failure.message, param=failure.param, code=failure.code or "invalid_value"
        )
    if failure.kind is FailureKind.DEADLINE:
        return DeadlineError(failure.message)
    if failure.kind is FailureKind.ROW_FAILED:
        return RequestFailedError(failure.message)
    return PoolUnavailableError(failure.message)
