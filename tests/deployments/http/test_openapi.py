"""Whatever is sent to the routes of /openapi.json: no 5xx, no status that it does not name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import status_code_conformance

from tests.deployments.http_server import application, server

CASES_PER_ROUTE = [15, pytest.param(225, marks=pytest.mark.nightly)]
"""Of bodies that fit, and of others; a name in a path cannot be another. 2,025 a night."""
ROUTES = [
    ("post", "/v1/completions"),
    ("post", "/v1/chat/completions"),
    ("post", "/tokenize"),
    ("post", "/detokenize"),
    ("get", "/v1/models/{name}"),
]


class _Server(threading.Thread):
    """The application over a cell, in a loop and on a port of its own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.started = threading.Event()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self.join(20)

    async def _serve(self) -> None:
        async with application() as (app, _):
            config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self.started.set()
            await self._done.wait()
            server.should_exit = True
            await serving


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = _Server()
    server.start()
    assert server.started.wait(20)
    yield server.url
    server.end()


@pytest.mark.parametrize("num_cases", CASES_PER_ROUTE)
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (method, path, mode)
        for method, path in ROUTES
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if method == "post" or mode is GenerationMode.POSITIVE
    ],
)
def test_nothing_breaks_a_route(
    url: str, method: str, path: str, mode: GenerationMode, num_cases: int
) -> None:
    operation = schemathesis.openapi.from_url(f"{url}/openapi.json")[path][method]

    @settings(
        max_examples=num_cases,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=[not_a_server_error, status_code_conformance])

    check()


async def test_every_route_is_named() -> None:
    async with server() as (client, _):
        document = (await client.get("/openapi.json")).json()
        named = {(m, path) for path, methods in document["paths"].items() for m in methods}
        assert set(ROUTES) < named
        assert all(method == "get" for method, _ in named - set(ROUTES))
        assert "$ref" not in str(document["paths"]), "bodies stand where they are used"
