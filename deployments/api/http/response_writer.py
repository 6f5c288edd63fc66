"""Answers as bytes for the client.

A long prompt has many log-probabilities. A thread writes them, and other requests continue
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastapi.responses import JSONResponse, Response
from pydantic_core import to_json

from deployments.api.http.responses import Response as Answer
from deployments.api.http.sse import server_sent
from deployments.ingress.lanes import INLINE, Lanes
from deployments.ingress.output import OutputChunk

_CHARS_PER_ENTRY = 5
"""The work of one log-probability, in characters to tokenize."""


async def whole(answer: Answer, pieces: Sequence[OutputChunk], lanes: Lanes) -> Response:
    """Return the response with all choices' outputs."""
    size = _work(pieces)
    if size <= INLINE:
        with answer.respond:
            return JSONResponse(answer.whole(pieces))
    return await lanes.run(size, partial(_large, answer, pieces))


def _large(answer: Answer, pieces: Sequence[OutputChunk]) -> Response:
    """The json module would keep the interpreter's lock three times as long."""
    return Response(to_json(answer.whole(pieces)), media_type="application/json")


async def event(answer: Answer, place: int, piece: OutputChunk, lanes: Lanes) -> str:
    """Return a piece as an event of a stream."""
    size = _work([piece]) if piece.prompt_logprobs else 0
    if size <= INLINE:
        return answer.event(place, piece)
    return await lanes.run(size, lambda: server_sent(answer.chunk(place, piece)))


def _work(pieces: Sequence[OutputChunk]) -> int:
    entries = (entry for piece in pieces for entry in (*piece.logprobs, *piece.prompt_logprobs))
    return _CHARS_PER_ENTRY * sum(1 + len(entry.top) for entry in entries)
