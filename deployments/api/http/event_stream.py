"""The body of an answer as bytes: a stream of events, or a whole answer.

Proxies cut a response that sends nothing for a while, often for 60 s. A comment line fills the time
that a request waits in the queue, in the prefill of its prompt, or for a replica that restarts. A
long prompt has many log-probabilities. A thread writes them, and other requests continue
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic_core import to_json
from starlette.types import Message, Receive, Scope, Send

from deployments.api.http.responses import Response as Answer
from deployments.api.http.sse import server_sent
from deployments.ingress.lanes import INLINE, Lanes
from deployments.ingress.output import OutputChunk

_CHARS_PER_ENTRY = 5
"""The work of one log-probability, in characters to tokenize."""


async def whole(answer: Answer, chunks: Sequence[OutputChunk], lanes: Lanes) -> Response:
    """Return the response with all choices' outputs."""
    size = _work(chunks)
    if size <= INLINE:
        with answer.respond:
            return JSONResponse(answer.whole(chunks))
    return await lanes.run(size, partial(_large, answer, chunks))


def _large(answer: Answer, chunks: Sequence[OutputChunk]) -> Response:
    """Return a large answer as one body. The json module would hold the interpreter's lock three
    times as long."""
    return Response(to_json(answer.whole(chunks)), media_type="application/json")


async def event(answer: Answer, position: int, chunk: OutputChunk, lanes: Lanes) -> str:
    """Return a chunk as an event of a stream."""
    size = _work([chunk]) if chunk.prompt_logprobs else 0
    if size <= INLINE:
        return answer.event(position, chunk)
    return await lanes.run(size, lambda: server_sent(answer.chunk(position, chunk)))


def _work(chunks: Sequence[OutputChunk]) -> int:
    entries = (entry for chunk in chunks for entry in (*chunk.logprobs, *chunk.prompt_logprobs))
    return _CHARS_PER_ENTRY * sum(1 + len(entry.top) for entry in entries)


COMMENT = ": keep-alive\n\n"
"""Clients ignore a line that begins with a colon."""
_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx passes every event on at once
}


class EventStream(StreamingResponse):
    """Events, and a comment after every `keep_alive_s` seconds without one."""

    def __init__(
        self,
        events: AsyncIterator[str],
        *,
        keep_alive_s: float,
        on_end: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_end`: called when the response has ended, also if `events` was never read."""
        super().__init__(events, headers=_HEADERS, media_type="text/event-stream")
        self._keep_alive_s = keep_alive_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._on_end()

    async def stream_response(self, send: Send) -> None:
        pulse = _Pulse(send, self._keep_alive_s)
        heartbeats = asyncio.create_task(pulse.beat())
        try:
            await super().stream_response(pulse.send)
        finally:
            heartbeats.cancel()


class _Pulse:
    """Passes messages on, and comments after silence."""

    def __init__(self, send: Send, interval_s: float) -> None:
        self._pass_on = send
        self._interval_s = interval_s
        self._clock = asyncio.get_running_loop().time
        self._last_s = self._clock()
        self._is_over = False

    def send(self, message: Message) -> Awaitable[None]:
        """Called once for every event: it notes the time and nothing else."""
        self._last_s = self._clock()
        self._is_over = not message.get("more_body", True)
        return self._pass_on(message)

    async def beat(self) -> None:
        comment = {"type": "http.response.body", "body": COMMENT.encode(), "more_body": True}
        # If the client or the proxy is gone, sending the next event fails as well.
        with contextlib.suppress(OSError, RuntimeError):
            while not self._is_over:
                left_s = self._last_s + self._interval_s - self._clock()
                if left_s > 0:
                    await asyncio.sleep(left_s)
                else:
                    await self.send(comment)
