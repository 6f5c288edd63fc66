"""Streams that wait, web pages and HEAD, through Serve's own proxy."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.service.conftest import Service
from tests.service.test_ingresses import standing_still
from tests.service.test_service import completion

pytestmark = pytest.mark.slow


def test_a_waiting_stream_has_headers_and_comments(service: Service, http: httpx.Client) -> None:
    body = completion(stream=True)
    with standing_still(service):
        asked_s = time.monotonic()
        with http.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            assert next(lines) == ": keep-alive"
            assert time.monotonic() - asked_s < 10.0
    # The stream was left, and the same request is answered.
    assert http.post("/v1/completions", json=completion()).status_code == 200


def test_http_has_its_manners_behind_the_proxy(service: Service) -> None:
    with httpx.Client(base_url=service.url, timeout=60) as client:
        head = client.head("/health")
        assert (head.status_code, head.content) == (200, b"")
        assert client.get("/v1/completions").headers["Allow"] == "POST"
        assert client.get("/v1/models").headers["WWW-Authenticate"] == "Bearer"
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403
        page = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
        assert client.post("/v1/completions", content=b"{}", headers=page).status_code == 415
        assert "client=" not in client.get("/metrics").text
