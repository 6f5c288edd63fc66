"""Chunks become fewer, never the text: nothing is lost, repeated or held behind the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.ingress.output import OutputChunk, joined
from deployments.ingress.streams import gathered
from specdec_core.request import FinishReason
from tests.deployments.http_server import completion, expected_text, server, stream


def pieces_of(sizes: Sequence[int]) -> list[OutputChunk]:
    """Ids count up from 0, each with its own text; the last piece ends the answer."""
    told, index = [], 0
    for place, size in enumerate(sizes):
        ids = tuple(range(index, index + size))
        told.append(
            OutputChunk(
                index=index,
                token_ids=ids,
                text="".join(f"<{i}>" for i in ids),
                text_offsets=ids,
                finish_reason=FinishReason.LENGTH if place == len(sizes) - 1 else None,
            )
        )
        index += size
    return told


async def source(
    pieces: Sequence[OutputChunk], error: Exception | None = None
) -> AsyncGenerator[OutputChunk]:
    for piece in pieces:
        yield piece
    if error is not None:
        raise error


async def read(pieces: AsyncGenerator[OutputChunk]) -> list[OutputChunk]:
    return [piece async for piece in pieces]


def test_the_first_piece_goes_at_once_and_later_ones_have_enough_tokens() -> None:
    told = asyncio.run(read(gathered(source(pieces_of([1, 1, 2, 1, 3, 1])), 3)))
    assert [piece.token_ids for piece in told] == [(0,), (1, 2, 3), (4, 5, 6, 7), (8,)]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(2, 6))
def test_together_they_say_the_same(sizes: list[int], fewest: int) -> None:
    pieces = pieces_of(sizes)
    told = asyncio.run(read(gathered(source(pieces), fewest)))
    assert joined(told) == joined(pieces)
    assert all(len(piece.token_ids) >= fewest for piece in told[1:-1])


def test_what_was_held_comes_before_an_error() -> None:
    told = []

    async def scenario() -> None:
        cut = source(pieces_of([1, 1, 1, 1])[:3], TimeoutError())
        async for piece in gathered(cut, 9):
            told.append(piece.token_ids)

    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
    assert told == [(0,), (1, 2)]


async def test_leaving_early_ends_what_is_gathered() -> None:
    pieces = source(pieces_of([1, 1, 1]))
    told = gathered(pieces, 2)
    await anext(told)
    await told.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)


async def test_a_stream_with_an_interval_has_fewer_chunks_and_the_same_text() -> None:
    asked = completion(return_token_ids=True, speculative={"enabled": False})
    async with server(stream_interval=6) as (client, _):
        chunks = await stream(client, "/v1/completions", asked)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [len(choice["token_ids"]) for choice in choices] == [1, 6, 6, 6, 1]
    assert "".join(choice["text"] for choice in choices) == expected_text("HELLO", 20)
    assert choices[-1]["finish_reason"] == "length"
