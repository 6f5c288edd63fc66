"""Web pages: those of a known origin may call the server, all others get nothing done."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_core.config import SchedulerConfig
from tests.deployments.http_server import completion, server

PATH = "/v1/completions"
PAGE = "https://chat.example.com"
EVIL = "https://evil.example"
SIMPLE = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
"""Content types that a page may send to any server."""


def preflight(origin: str, method: str = "POST") -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
    }


@pytest.mark.parametrize("origins", [(PAGE,), ("http://localhost:3000", PAGE), ("*",)])
async def test_a_known_origin_is_allowed_by_the_preflight(origins: tuple[str, ...]) -> None:
    async with server(cors_origins=origins, keys=("k",)) as (client, _):
        for path in (PATH, "/v1/chat/completions", "/v1/models", "/tokenize"):
            answer = await client.options(path, headers=preflight(PAGE))
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] in (PAGE, "*")
            allowed = set(answer.headers["access-control-allow-headers"].lower().split(","))
            assert {"authorization", "content-type", "x-stainless-lang"} <= allowed
            private = preflight(PAGE) | {"Access-Control-Request-Private-Network": "true"}
            assert (await client.options(path, headers=private)).status_code == 200


@pytest.mark.parametrize("origins", [(), (PAGE,), (f"{EVIL}:8443",)])
async def test_an_unknown_origin_is_not(origins: tuple[str, ...]) -> None:
    async with server(cors_origins=origins) as (client, _):
        answer = await client.options(PATH, headers=preflight(EVIL))
        assert answer.status_code in (400, 405)
        assert "access-control-allow-origin" not in answer.headers
        read = await client.get("/v1/models", headers={"Origin": EVIL})
        assert "access-control-allow-origin" not in read.headers


ANSWERS: list[tuple[str, str, Any, int]] = [
    ("GET", "/v1/models", None, 200),
    ("HEAD", "/v1/models", None, 200),
    ("GET", "/health", None, 200),
    ("POST", PATH, completion(), 200),
    ("POST", PATH, completion(stream=True), 200),
    ("POST", PATH, completion(temperature=-1), 400),
    ("POST", PATH, completion(model="other"), 404),
    ("POST", "/v1/responses", {}, 404),
    ("GET", PATH, None, 405),
    ("POST", PATH, completion(prompt="A" * 200_000), 413),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), ANSWERS)
async def test_every_answer_may_be_read_by_a_known_page(
    method: str, path: str, body: Any, status: int
) -> None:
    async with server(cors_origins=(PAGE,)) as (client, _):
        answer = await client.request(method, path, json=body, headers={"Origin": PAGE})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "Origin" in answer.headers["vary"]
        assert "Retry-After" in answer.headers["access-control-expose-headers"]


async def test_refusals_of_keys_and_queues_may_be_read_too() -> None:
    config = SchedulerConfig(max_queued=0, window=1, max_group_size=1)
    async with server(cors_origins=(PAGE,), keys=("k",), config=config) as (client, _):
        headers = {"Origin": PAGE}
        wrong = await client.post(PATH, json=completion(), headers=headers)
        assert wrong.status_code == 401
        assert wrong.headers["access-control-allow-origin"] == PAGE
        headers |= {"Authorization": "Bearer k"}
        full = await client.post(PATH, json=completion(n=3), headers=headers)
        assert full.status_code == 429
        assert full.headers["access-control-allow-origin"] == PAGE
        assert full.headers["Retry-After"]


@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize("origin", [EVIL, "null", "http://localhost:3000"])
async def test_what_a_page_may_send_unasked_is_refused(kind: str, origin: str) -> None:
    async with server(cors_origins=(PAGE,)) as (client, parts):
        headers = {"Origin": origin} | ({"Content-Type": kind} if kind else {})
        for path in (PATH, "/v1/chat/completions", "/tokenize", "/detokenize"):
            content = b'{"prompt": "HELLO"}'
            answer = await client.post(path, content=content, headers=headers)
            assert answer.status_code == 415
            assert "cors_origins" in answer.json()["error"]["message"]
        assert not parts.replicas["t0"].num_leases


@pytest.mark.parametrize(
    "headers",
    [
        *({"Content-Type": kind} if kind else {} for kind in SIMPLE),  # no page: `curl -d`
        {"Content-Type": "application/json"},
        {"Content-Type": "application/json; charset=utf-8", "Origin": EVIL},
        {"Content-Type": "application/problem+json", "Origin": EVIL},
        {"Content-Type": "application/octet-stream", "Origin": "null"},
        {"Content-Type": "text/plain", "Origin": PAGE},
        {"Origin": PAGE},
        {"Content-Type": "text/plain", "Origin": "http://localhost"},  # the server's own page
    ],
)
async def test_all_else_is_read(headers: dict[str, str]) -> None:
    async with server(cors_origins=(PAGE,)) as (client, _):
        content = b'{"prompt": "HELLO", "max_tokens": 2}'
        answer = await client.post(PATH, content=content, headers=headers)
        assert answer.status_code == 200, answer.text


NAMES = [
    "evil.example",
    "evil.example:8000",
    "evil.example.",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
]
MALFORMED = ["[::1", "a:b:80", "http://localhost"]
OWN = [
    "localhost",
    "localhost:8000",
    "LOCALHOST",
    "localhost.",
    "chat.localhost:80",
    "127.0.0.1:8000",
    "127.0.0.1.",
    "127.1.2.3",
    "[::1]:8000",
    "[::ffff:127.0.0.1]",
    "192.168.0.7:8000",
    "",
]


@pytest.mark.parametrize("host", [*NAMES, *MALFORMED])
async def test_a_name_that_was_bound_to_this_machine_is_refused(host: str) -> None:
    async with server() as (client, _):
        for path in ("/v1/models", "/health", "/metrics", "/openapi.json", "/x"):
            answer = await client.get(path, headers={"Host": host})
            assert answer.status_code == 403
            assert "--allowed-hosts" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", OWN)
async def test_its_own_names_and_addresses_are_not(host: str) -> None:
    async with server() as (client, _):
        assert (await client.get("/health", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"allowed_hosts": ("evil.example",)},
        {"allowed_hosts": ("other.example", "*")},
        {"host": "0.0.0.0"},
        {"host": "10.0.0.1"},
    ],
)
async def test_allowed_names_and_servers_for_others_answer(settings: dict[str, Any]) -> None:
    async with server(**settings) as (client, _):
        for host in (*NAMES[:2], "EVIL.example.", "evil.example.:8000"):
            assert (await client.get("/health", headers={"Host": host})).status_code == 200
