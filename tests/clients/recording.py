"""Requests of clients as JSON files: an ASGI layer writes them, tests read them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LEFT_OUT = {"host", "connection", "content-length", "transfer-encoding", "traceparent"}
"""Headers of one connection."""
_SCRUBBED = {"authorization": "Bearer -", "api-key": "-", "x-api-key": "-"}


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request of a client, and the status that it is answered with."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int


def read_recording(file: Path) -> list[RecordedRequest]:
    return [RecordedRequest(**request) for request in json.loads(file.read_text())]


class Recorder:
    """Passes everything to the application and writes each different request to a file."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]], file: Path):
        self._app = app
        self._file = file
        self._requests: list[RecordedRequest] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body, status = bytearray(), 0

        async def heard() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def told(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, heard, told)
        finally:
            self._note(scope, bytes(body), status)

    def _note(self, scope: Message, body: bytes, status: int) -> None:
        request = RecordedRequest(
            method=scope["method"],
            path=scope["path"],
            headers=_kept(scope["headers"]),
            body=json.loads(body) if body else None,
            status=status,
        )
        if request in self._requests:
            return
        self._requests.append(request)
        lines = (json.dumps(asdict(one), ensure_ascii=False) for one in self._requests)
        self._file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _kept(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    named = {name.decode().lower(): value.decode() for name, value in headers}
    return {n: _SCRUBBED.get(n, value) for n, value in named.items() if n not in _LEFT_OUT}
