"""Answers to paths and methods that the server does not have."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

CHAT, COMPLETIONS = "POST /v1/chat/completions", "POST /v1/completions"
_INSTEAD = {
    "responses": f"the Responses API is not served here; use {CHAT}",
    "assistants": f"the Assistants API is not served here; use {CHAT}",
    "threads": f"the Assistants API is not served here; use {CHAT}",
    "messages": f"Anthropic's API is not served here; use {CHAT}",
    "engines": f"engines are not served here; use {COMPLETIONS}",
    "embeddings": "this server generates text, not embeddings",
}
"""OpenAI's API families by the first part of their path."""
_ROUTES = f"the routes are {CHAT}, {COMPLETIONS} and GET /v1/models"


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
