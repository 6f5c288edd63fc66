"""Log-probabilities as JSON: OpenAI's two shapes, and that of `specdec generate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deployments.output import Piece
from specdec_core.logprobs import TokenLogprobs

TokenBytes = Callable[[int], bytes]

_LEAST = -9999.0
"""What OpenAI writes for minus infinity, which JSON does not have."""


def completion_logprobs(piece: Piece, token_bytes: TokenBytes) -> dict[str, Any]:
    """Four lists with one entry per token of the piece.

    As the API says, an entry of `top_logprobs` may have one more than was asked for: the token
    itself, where it is not among the most probable.
    """
    pairs = list(zip(piece.token_ids, piece.logprobs, strict=True))
    return {
        "text_offset": list(piece.text_offsets),
        "token_logprobs": [_number(entry.logprob) for entry in piece.logprobs],
        "tokens": [_shown(token_bytes(token_id)) for token_id in piece.token_ids],
        "top_logprobs": [_by_text(token_id, entry, token_bytes) for token_id, entry in pairs],
    }


def chat_logprobs(piece: Piece, token_bytes: TokenBytes) -> dict[str, Any]:
    """One object per token of the piece."""
    content = [
        _chat_entry(token_id, entry.logprob, token_bytes)
        | {"top_logprobs": [_chat_entry(i, logprob, token_bytes) for i, logprob in entry.top]}
        for token_id, entry in zip(piece.token_ids, piece.logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def logprob_records(
    token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
) -> list[dict[str, Any]]:
    """One object per token, by ids."""
    return [
        {
            "token_id": token_id,
            "logprob": _number(entry.logprob),
            "top_logprobs": [{"token_id": i, "logprob": _number(lp)} for i, lp in entry.top],
        }
        for token_id, entry in zip(token_ids, logprobs, strict=True)
    ]


def _by_text(token_id: int, entry: TokenLogprobs, token_bytes: TokenBytes) -> dict[str, float]:
    """By text, the most probable first. Of tokens that read alike the most probable is named."""
    by_text: dict[str, float] = {}
    for other_id, logprob in (*entry.top, (token_id, entry.logprob)):
        by_text.setdefault(_shown(token_bytes(other_id)), _number(logprob))
    return by_text


def _chat_entry(token_id: int, logprob: float, token_bytes: TokenBytes) -> dict[str, Any]:
    content = token_bytes(token_id)
    return {"token": _shown(content), "logprob": _number(logprob), "bytes": list(content)}


def _shown(content: bytes) -> str:
    """Text; what is no whole character is spelled byte by byte, as OpenAI does."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


def _number(logprob: float) -> float:
    return max(logprob, _LEAST)
