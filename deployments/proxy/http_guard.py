"""uvicorn's HTTP protocol with limits for clients that hold a connection but send or read nothing.

Without this, uvicorn waits forever for a header, a body or a reader, and keeps a header of any
size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """Limits of one connection."""

    head_s: float = 30.0
    """Seconds from the first moment of the connection or the request to the end of its headers."""
    body_s: float = 60.0
    """Seconds from there to the end of the body."""
    unread_s: float = 60.0
    """Seconds that an answer waits for its reader, without any progress."""
    max_head_bytes: int = 64 * 1024


class GuardedHttp(HttpToolsProtocol):
    """A connection that is closed when its client exceeds a limit. Its request is cancelled too."""

    limits: ClassVar[EdgeLimits] = EdgeLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._sending = _Patience(self.loop)
        self._reading = _Patience(self.loop)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._sending.end()
        self._reading.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > self.limits.max_head_bytes:
                self.transport.write(_TOO_LARGE)
                self._close()

    def on_message_begin(self) -> None:
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._sending.begin(self.limits.body_s, self._close)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._sending.end()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._reading.end()
        super().resume_writing()

    def _await_head(self) -> None:
        self._is_in_head = True
        self._num_head_bytes = 0
        self._sending.begin(self.limits.head_s, self._close)

    def _await_reader(self) -> None:
        """Abort the connection unless what is written reaches its reader in time."""
        self._reading.begin(self.limits.unread_s, self.transport.abort)

    def _close(self) -> None:
        """Close the connection when what is written has been read, for which there is a limit
        too."""
        self.transport.close()
        self._await_reader()


@dataclass(eq=False, slots=True)
class _Patience:
    """One timer, which the latest call of `begin` sets."""

    loop: asyncio.AbstractEventLoop
    timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, then: Callable[[], None]) -> None:
        self.end()
        self.timer = self.loop.call_later(seconds, then)

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
