"""HTTP's own manners: HEAD, 405, 401, compressed bodies, marks of byte order, unknown routes."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from tests.deployments.http_server import (
    application,
    completion,
    expected_text,
    listening,
    server,
)

PATH = "/v1/completions"
READ = ["/health", "/ready", "/version", "/metrics", "/openapi.json", "/v1/models"]
READ += ["/v1/models/", "/v1/models/fake"]
WRITTEN = [PATH, "/v1/chat/completions", "/tokenize", "/detokenize"]
RAW = json.dumps(completion()).encode()
Pack = Callable[[bytes], bytes]


async def test_head_is_get_without_a_body() -> None:
    async with (
        application() as (app, _),
        listening(app) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for path in (*READ, "/v1/models/other"):
            whole, head = await client.get(path), await client.head(path)
            assert head.status_code == whole.status_code, path
            assert head.headers["content-type"] == whole.headers["content-type"]
            assert head.content == b""
            # The connection is still in step.
            assert (await client.get("/health")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "methods", "allowed"),
    [
        *((path, ["POST", "PUT", "DELETE", "OPTIONS"], {"GET", "HEAD"}) for path in READ),
        *((path, ["GET", "HEAD", "PUT", "DELETE"], {"POST"}) for path in WRITTEN),
    ],
)
async def test_a_method_that_a_path_lacks_is_told_the_others(
    path: str, methods: list[str], allowed: set[str]
) -> None:
    async with server() as (client, _):
        for method in methods:
            answer = await client.request(method, path)
            assert answer.status_code == 405
            assert set(answer.headers["Allow"].split(", ")) == allowed
            if method != "HEAD":
                assert answer.json()["error"]["code"] == "method_not_supported"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer no"}, {"Authorization": "k"}])
async def test_who_lacks_a_key_is_told_how_to_show_it(headers: dict[str, str]) -> None:
    async with server(keys=("k",)) as (client, _):
        for method, path in (("GET", "/v1/models"), *(("POST", path) for path in WRITTEN)):
            answer = await client.request(method, path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"


def gzip_in_pieces(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    pieces = [packer.compress(data[i : i + 7]) for i in range(0, len(data), 7)]
    return b"".join([*pieces, packer.flush()])


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", gzip_in_pieces),
        ("deflate", zlib.compress),
        ("identity", bytes),
    ],
)
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_compressed_body_is_read(coding: str, pack: Pack, in_pieces: bool) -> None:
    packed = pack(RAW)

    async def pieces() -> AsyncIterator[bytes]:
        for place in range(0, len(packed), 5):
            yield packed[place : place + 5]

    async with server() as (client, _):
        content: Any = pieces() if in_pieces else packed
        headers = {"Content-Encoding": coding}
        answer = await client.post(PATH, content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == expected_text("HELLO", 20)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip, br", "compress", "x"])
async def test_a_coding_that_is_not_known_is_refused(coding: str) -> None:
    async with server() as (client, _):
        headers = {"Content-Encoding": coding}
        answer = await client.post(PATH, content=RAW, headers=headers)
        assert answer.status_code == 415
        assert answer.headers["Accept-Encoding"] == "gzip, deflate"
        assert coding in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "content",
    [RAW, b"", gzip.compress(RAW)[:-9], gzip.compress(RAW) + b"more", b"\x1f\x8b\x08"],
    ids=["plain", "empty", "cut", "followed", "head"],
)
async def test_what_is_not_packed_so_is_refused(content: bytes) -> None:
    async with server() as (client, _):
        headers = {"Content-Encoding": "gzip"}
        answer = await client.post(PATH, content=content, headers=headers)
        assert answer.status_code == 400
        assert "not valid gzip" in answer.json()["error"]["message"]


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_body_that_swells_is_cut_off_at_the_limit(pack: Pack) -> None:
    bomb = pack(b'{"prompt": "' + b"A" * 64_000_000)
    assert len(bomb) < 100_000
    async with server() as (client, _):
        headers = {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
        tracemalloc.start()
        answer = await client.post(PATH, content=bomb, headers=headers)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert answer.status_code == 413
        assert peak < 3_000_000


MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("path", WRITTEN)
async def test_a_mark_of_the_byte_order_is_no_part_of_the_body(path: str) -> None:
    bodies = {
        PATH: completion(),
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "A"}], "max_tokens": 2},
        "/tokenize": {"prompt": "HELLO"},
        "/detokenize": {"tokens": [1, 2]},
    }
    async with server() as (client, _):
        raw = json.dumps(bodies[path]).encode()
        assert (await client.post(path, content=MARK + raw)).status_code == 200
        headers = {"Content-Encoding": "gzip"}
        packed = gzip.compress(MARK + raw)
        assert (await client.post(path, content=packed, headers=headers)).status_code == 200
        assert (await client.post(path, content=MARK + MARK + raw)).status_code == 400
        assert (await client.post(path, content=MARK)).status_code == 400


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/responses", "/v1/chat/completions"),
        ("/v1/responses/resp_1", "/v1/chat/completions"),
        ("/responses", "/v1/chat/completions"),
        ("/v1/assistants", "/v1/chat/completions"),
        ("/v1/threads/t/runs", "/v1/chat/completions"),
        ("/v1/messages", "/v1/chat/completions"),
        ("/v1/engines/fake/completions", "/v1/completions"),
        ("/v1/embeddings", "not embeddings"),
        ("/v1/audio/speech", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
    ],
)
async def test_an_unknown_url_names_the_route_to_use(path: str, hint: str) -> None:
    async with server(keys=("k",)) as (client, _):
        for method in ("GET", "POST", "DELETE"):
            answer = await client.request(method, path)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (404, "unknown_url")
            assert hint in error["message"]
            assert f"{method} {path}" in error["message"]
