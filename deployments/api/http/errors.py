"""Errors as HTTP responses, in OpenAI's shape; unknown paths and methods are errors, too."""

from __future__ import annotations

import logging
import math

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from deployments.error_status import error_body, status_of
from deployments.errors import RequestFailedError, UnauthorizedError
from deployments.ingress.request_log import current_record
from specdec_core.errors import TryAgainError

logger = logging.getLogger(__name__)

_CHAT, _COMPLETIONS = "POST /v1/chat/completions", "POST /v1/completions"
_INSTEAD = {
    "responses": f"the Responses API is not served here; use {_CHAT}",
    "assistants": f"the Assistants API is not served here; use {_CHAT}",
    "threads": f"the Assistants API is not served here; use {_CHAT}",
    "messages": f"Anthropic's API is not served here; use {_CHAT}",
    "engines": f"engines are not served here; use {_COMPLETIONS}",
    "embeddings": "this server generates text, not embeddings",
}
"""OpenAI's API families by the first part of their path."""
_ROUTES = f"the routes are {_CHAT}, {_COMPLETIONS} and GET /v1/models"


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


async def unknown_route(request: Request, error: Exception) -> JSONResponse:
    """404 with the route to use, or 405 with the methods that the path has."""
    assert isinstance(error, HTTPException)
    route = f"{request.method} {request.url.path[:200]}"
    headers = dict(error.headers or {})
    if error.status_code == 404:
        kind, code = "not_found_error", "unknown_url"
        message = f"unknown URL {route}: {_hint(request.url.path)}"
    else:
        kind, code = "invalid_request_error", "method_not_supported"
        headers["Allow"] = _with_head(headers.get("Allow", ""))
        message = f"{route}: {error.detail}, use {headers['Allow']}"
    body = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": body}, status_code=error.status_code, headers=headers)


def _hint(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", "v1")]
    return _INSTEAD.get(parts[0] if parts else "", _ROUTES)


def _with_head(allowed: str) -> str:
    """Return the allowed methods with HEAD added if GET is one of them."""
    methods = allowed.split(", ")
    return ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
