"""Holds chunks of an answer until together they are worth a message."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from deployments.ingress.output import OutputChunk, joined


async def gathered(pieces: AsyncGenerator[OutputChunk], fewest: int) -> AsyncGenerator[OutputChunk]:
    """Yield the first chunk immediately, then chunks of at least `fewest` tokens.

    The last chunk may have fewer tokens. Chunks held when an error comes are yielded before it.
    """
    held: list[OutputChunk] = []
    needed = 0
    async with contextlib.aclosing(pieces):
        if fewest == 1:  # the usual: nothing is ever held
            async for piece in pieces:
                yield piece
            return
        try:
            async for piece in pieces:
                held.append(piece)
                if piece.finish_reason is not None or _num_tokens(held) >= needed:
                    told, held, needed = held, [], fewest
                    yield _one(told)
        except Exception:
            if held:
                yield _one(held)
            raise


def _one(pieces: Sequence[OutputChunk]) -> OutputChunk:
    return pieces[0] if len(pieces) == 1 else joined(pieces)


def _num_tokens(pieces: Sequence[OutputChunk]) -> int:
    return sum(len(piece.token_ids) for piece in pieces)
