"""Resumes an answer for a client whose stream broke and that brings back the tokens it has.

The scheduler checks these tokens and emits them like any others. Text, stop strings and counts are
therefore those of an answer that was never cut. A stream leaves out the tokens that its client has.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from deployments.errors import FingerprintError
from deployments.ingress.generation_request import (
    Generation,
    GenerationRequest,
    Resume,
    chosen_seed,
)
from deployments.ingress.output import OutputChunk
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.request import FinishReason


def with_seed(ask: GenerationRequest, resume: Resume) -> GenerationRequest:
    """Return the request with the seed of the answer that is resumed."""
    own, begun = chosen_seed(ask.sampling.get("seed")), chosen_seed(resume.seed)
    if own is not None and begun not in (None, own):
        raise InvalidRequestError(
            f"resume.seed={resume.seed} and seed={ask.sampling['seed']} differ", param="resume.seed"
        )
    return replace(ask, sampling={**ask.sampling, "seed": begun if own is None else own})


def check_fingerprint(resume: Resume, present: str) -> None:
    """Check that the server can resume the answer. Raises FingerprintError.

    `present` is empty without a coordinator.
    """
    begun = resume.system_fingerprint
    if begun and present and begun != present:
        raise FingerprintError(
            f"resume.system_fingerprint is {begun!r:.200}, but this server now has "
            f"{present!r}: start a new request, or leave the fingerprint out to try"
        )


def resumed(
    generations: Sequence[Generation], ask: GenerationRequest, resume: Resume, text: TextModel
) -> list[Generation]:
    """Return every choice with the tokens that its client has. Raises InvalidRequestError."""
    if len(resume.token_ids) != len(generations):
        raise InvalidRequestError(
            f"resume.token_ids has {len(resume.token_ids)} lists, "
            f"the request has {len(generations)} choices",
            param="resume.token_ids",
        )
    is_sampled = generations[0].request.params.temperature > 0.0
    if is_sampled and ask.sampling.get("seed") is None and any(resume.token_ids):
        raise InvalidRequestError(
            "resume.seed is missing: at temperature "
            f"{generations[0].request.params.temperature:g}, send the seed of the first "
            "chunk",
            param="resume.seed",
            code="missing_required_parameter",
        )
    checked = [text.check_ids(ids, "resume.token_ids") for ids in resume.token_ids]
    return [
        replace(one, request=replace(one.request, resume_token_ids=ids))
        for one, ids in zip(generations, checked, strict=True)
    ]


def check_end(piece: OutputChunk, count: int) -> None:
    """Check that the answer does not end before the last token that its client has.

    Raises InvalidRequestError.
    """
    end = piece.index + len(piece.token_ids)
    if piece.finish_reason is FinishReason.STOP and end < count:
        raise InvalidRequestError(
            f"resume has {count} token ids, but the answer ends with its token {end}",
            param="resume.token_ids",
        )


async def untold(pieces: AsyncGenerator[OutputChunk], count: int) -> AsyncGenerator[OutputChunk]:
    """Yield the chunks after the first `count` tokens, and the last chunk in any case.

    No input chunk may have tokens on both sides of this boundary.
    """
    told, offsets = "", list[int]()
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if piece.index < count:
                told += piece.text
                offsets += piece.text_offsets
                if piece.finish_reason is None:
                    continue
                piece = _end_of(piece)
            yield replace(piece, told_text=told, told_offsets=tuple(offsets))
            told, offsets = "", []


def _end_of(piece: OutputChunk) -> OutputChunk:
    """Return a last chunk without its tokens, which the client has."""
    return replace(
        piece,
        index=piece.index + len(piece.token_ids),
        token_ids=(),
        text="",
        text_offsets=(),
        logprobs=(),
        prompt_logprobs=(),
    )
