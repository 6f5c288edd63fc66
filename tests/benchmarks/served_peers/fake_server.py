"""A server without an engine: `python -m tests.benchmarks.served_peers.fake_server PORT DIALECT`.

Its chunks have the shapes of vLLM's, specdec's and llama-server's streams.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

_USAGE = {"prompt_tokens": 40, "total_tokens": 44}


def vllm_chunks(num_tokens: int) -> list[dict[str, Any]]:
    """A role first, a token a chunk, the usage alone at the end."""
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    words = [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}] * num_tokens
    words[-1] = {**words[-1], "finish_reason": "length"}
    usage = {"choices": [], "usage": {**_USAGE, "completion_tokens": num_tokens}}
    return [{"choices": [choice], "usage": None} for choice in (role, *words)] + [usage]


def llama_chunks(num_tokens: int) -> list[dict[str, Any]]:
    """As above with null for no text, an empty delta at the end, timings beside the usage."""
    role = {"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}
    words = [{"finish_reason": None, "index": 0, "delta": {"content": "word "}}] * num_tokens
    end = {"finish_reason": "length", "index": 0, "delta": {}}
    usage = {"completion_tokens": num_tokens, **_USAGE}
    last = {"choices": [], "usage": usage, "timings": {"predicted_n": num_tokens}}
    return [{"choices": [choice]} for choice in (role, *words, end)] + [last]


def specdec_chunks(num_tokens: int) -> list[dict[str, Any]]:
    """Several tokens a chunk."""
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    text = {"index": 0, "delta": {"content": "word " * num_tokens}, "finish_reason": "length"}
    usage = {"choices": [], "usage": {**_USAGE, "completion_tokens": num_tokens}}
    return [{"choices": [choice]} for choice in (first, text)] + [usage]


DIALECTS = {"vllm": vllm_chunks, "llama": llama_chunks, "specdec": specdec_chunks}


class FakeServer:
    """Keeps the bodies that it got; answers of a server that ends early have one token less."""

    def __init__(self, dialect: str, *, ends_early: bool = False) -> None:
        self._chunks, self._missing = DIALECTS[dialect], int(ends_early)
        self.bodies: list[dict[str, Any]] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for chunk in self._chunks(body["max_tokens"] - self._missing):
            await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await answer.write(b"data: [DONE]\n\n")
        return answer


@contextmanager
def listening(server: FakeServer) -> Iterator[str]:
    """Its address, while a thread answers there."""
    listener = socket.create_server(("127.0.0.1", 0))
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(server.app())

    async def begin() -> None:
        await runner.setup()
        await web.SockSite(runner, listener).start()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


if __name__ == "__main__":
    web.run_app(FakeServer(sys.argv[2]).app(), host="127.0.0.1", port=int(sys.argv[1]), print=None)
