"""One HTTP request on a connection of its own, over plain streams.

A client library's pool takes longer with a thousand connections than the server that is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from benchmarks.overload.questions import Ids, Server

END_OF_HEAD = b"\r\n\r\n"


class CutOffError(Exception):
    """The answer ended before it was whole."""


class Answer(NamedTuple):
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def completion(server: Server, prompt: Ids, max_tokens: int) -> dict[str, Any]:
    """Return the body of a greedy completion of exactly `max_tokens` tokens."""
    return {
        "model": server.model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


def post(server: Server, path: str, body: Mapping[str, Any]) -> bytes:
    """The request; the server is asked to close the connection behind the answer."""
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {server.host}:{server.port}",
        "content-type: application/json",
        f"content-length: {len(content)}",
        "connection: close",
    ]
    if server.api_key:
        lines.append(f"authorization: Bearer {server.api_key}")
    return "\r\n".join(lines).encode() + END_OF_HEAD + content


async def exchange(server: Server, request: bytes) -> Answer:
    """Send, and read to the end. Raises OSError or CutOffError."""
    async with connection(server.host, server.port) as (reader, writer):
        writer.write(request)
        return parse(await reader.read())


@contextlib.asynccontextmanager
async def connection(
    host: str, port: int, **options: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Closed at once, whatever is still unsent."""
    reader, writer = await asyncio.open_connection(host, port, **options)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def parse(raw: bytes) -> Answer:
    """Raises CutOffError for what is not a whole answer."""
    head, found, content = raw.partition(END_OF_HEAD)
    if not found:
        raise CutOffError(f"the connection ended after {len(raw)} bytes, inside the headers")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Answer(int(status_line.split()[1]), headers, _body(headers, content))


def _body(headers: Mapping[str, str], content: bytes) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        return _unchunked(content)
    expected = int(headers.get("content-length", len(content)))
    if len(content) < expected:
        raise CutOffError(f"{len(content)} of {expected} bytes came")
    return content[:expected]


def _unchunked(content: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, found, content = content.partition(b"\r\n")
        if not found:
            raise CutOffError(f"the stream ended after {len(parts)} chunks")
        length = int(size, 16)
        if length == 0:
            return b"".join(parts)
        if len(content) < length + 2:
            raise CutOffError(f"the stream ended inside chunk {len(parts) + 1}")
        parts.append(content[:length])
        content = content[length + 2 :]
