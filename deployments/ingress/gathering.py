"""Pieces of an answer, held until they are worth a message of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from deployments.ingress.output import OutputChunk, joined


async def gathered(pieces: AsyncGenerator[OutputChunk], fewest: int) -> AsyncGenerator[OutputChunk]:
    """The first piece at once, then such of at least `fewest` tokens; the last whatever it has.

    What was held when an error came is handed out before it.
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
