"""Whom `specdec top` asks: a port of HTTP is named as such, not waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from deployments.cli.main import app
from deployments.cli.top.watching import AwayError, service_at
from specdec_core.errors import InvalidRequestError


@pytest.fixture
def http_port() -> Iterator[int]:
    """One that answers in HTTP/1."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_port_of_http_is_told_by_what_it_answers(http_port: int) -> None:
    told = pytest.raises(InvalidRequestError, match=r"an HTTP address.*127\.0\.0\.1:9000")
    with service_at(f"127.0.0.1:{http_port}", None) as ask, told:
        ask()


def test_a_port_that_nobody_has_is_away() -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with service_at(address, None) as ask, pytest.raises(AwayError):
            ask()


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000", "https://specdec.example.com"])
def test_an_address_with_a_scheme_is_refused_before_anybody_is_asked(address: str) -> None:
    answer = CliRunner().invoke(app, ["top", address, "--once"])
    assert answer.exit_code != 0
    assert "gRPC" in str(answer.exception)
