"""Errors as HTTP responses, in OpenAI's shape."""

from __future__ import annotations

import logging
import math

from fastapi.responses import JSONResponse

from deployments.error_status import error_body, status_of
from deployments.errors import RequestFailedError, UnauthorizedError
from deployments.ingress.request_log import current_record
from specdec_core.errors import TryAgainError

logger = logging.getLogger(__name__)


def error_response(error: Exception) -> JSONResponse:
    """Return an error in OpenAI's shape. For an unexpected one it reveals only that it happened."""
    log_unexpected(error)
    status = status_of(error)
    current_record().status = status
    headers = {}
    if isinstance(error, TryAgainError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_code=status.http, headers=headers)


def log_unexpected(error: Exception) -> None:
    """Log an error with its traceback if it is a fault. The line of the request reports every
    error."""
    current_record().error = error
    if status_of(error).http == 500 and not isinstance(error, RequestFailedError):
        logger.error("a request failed unexpectedly", exc_info=error)
