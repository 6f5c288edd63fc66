"""Server-sent events: JSON bodies on their way to the client, and read by one.

Proxies cut a response that sends nothing for a while, often for 60 s. A comment line fills the time
that a request waits in the queue, in the prefill of its prompt, or for a replica that restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

DONE = "[DONE]"
"""Data of the last event of a stream."""
_DATA = "data:"
END = f"{_DATA} {DONE}\n\n"
"""The last event of a stream."""
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})
"""Line ends of Unicode, which JSON allows within a string, and their escapes.

A client that splits a stream by them, as httpx's iter_lines does, would read half an event.
"""
COMMENT = ": keep-alive\n\n"
"""Clients ignore a line that begins with a colon."""
_COMMENT_PART = {"type": "http.response.body", "body": COMMENT.encode(), "more_body": True}
_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx passes every event on at once
}


def event_data(line: str) -> str | None:
    """Return the data of a stream's line. None if it has no data, as between two events."""
    return line.removeprefix(_DATA).strip() if line.startswith(_DATA) else None


def server_sent(body: Mapping[str, Any]) -> str:
    """Return `body` as an event of a stream."""
    text = json.dumps(body, ensure_ascii=False)
    return f"{_DATA} {text if text.isascii() else text.translate(_LINE_ENDS)}\n\n"


class Frame(NamedTuple):
    """The part that most events of a stream have in common, without the text. It is written
    once."""

    parts: Sequence[str]

    @classmethod
    def around(cls, body: Mapping[str, Any], count: int = 1) -> Frame:
        """Return the frame of a body whose last `count` strings are empty: the text's places."""
        return cls(server_sent(body).rsplit('""', count))

    def with_text(self, text: str) -> str:
        """Return what `server_sent` makes of the body with `text` in it."""
        told = encode_basestring(text)
        return (told if told.isascii() else told.translate(_LINE_ENDS)).join(self.parts)


class EventStream(StreamingResponse):
    """Events, and a comment after every `keep_alive_s` seconds without one.

    `on_end` is called when the response has ended, also if `events` was never read.
    """

    def __init__(
        self, events: AsyncIterator[str], keep_alive_s: float, on_end: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(events, headers=_HEADERS, media_type="text/event-stream")
        self._keep_alive_s = keep_alive_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._on_end()

    async def stream_response(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        last_s, is_over = clock(), False

        def pass_on(message: Message) -> Awaitable[None]:
            # Called once for every event: it notes the time and nothing else.
            nonlocal last_s, is_over
            last_s, is_over = clock(), not message.get("more_body", True)
            return send(message)

        async def keep_alive() -> None:
            # If the client or the proxy is gone, sending the next event fails as well.
            with contextlib.suppress(OSError, RuntimeError):
                while not is_over:
                    await asyncio.sleep(last_s + self._keep_alive_s - clock())
                    if clock() >= last_s + self._keep_alive_s and not is_over:
                        await pass_on(_COMMENT_PART)

        comments = asyncio.create_task(keep_alive())
        try:
            await super().stream_response(pass_on)
        finally:
            comments.cancel()
