"""Random walks over a grammar's masks, without a model: each token is one byte."""

from __future__ import annotations

from random import Random
from typing import Any

import llguidance

from deployments.text.grammar_source import library_text, refusal
from specdec_core.grammar import GrammarSpec

END = 256
_FAVOURED = frozenset(b'"}],')
"""Bytes that bring JSON to its end."""


class _Bytes:
    eos_token_id, bos_token_id = END, None
    tokens = (*(bytes([i]) for i in range(256)), b"<end>")
    special_token_ids = (END,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER: Any = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), slices=[])


def matcher_of(spec: GrammarSpec) -> Any:
    """Return a matcher. Raises InvalidRequestError as the product does."""
    text = library_text(llguidance.LLMatcher, spec)
    matcher = llguidance.LLMatcher(TOKENIZER, text, log_level=0)
    if matcher.is_error():
        raise refusal(matcher.get_error(), spec)
    return matcher


def walk(matcher: Any, random: Random, *, longest: int = 300) -> bytes | None:
    """Return one finished answer; None if it is not finished after `longest` bytes.

    Raises RuntimeError with the library's words if nothing may follow.
    """
    output = bytearray()
    while len(output) < longest:
        mask = matcher.compute_logit_bias()
        if matcher.is_error():
            raise RuntimeError(matcher.get_error())
        allowed = [i for i, weight in enumerate(mask) if weight]
        assert allowed, bytes(output)
        favoured = [i for i in allowed if i in _FAVOURED]
        hurry = 0.1 + len(output) / longest
        if END in allowed and random.random() < 0.5:
            return bytes(output)
        allowed = [i for i in allowed if i != END]
        if not allowed:
            return bytes(output)
        token = random.choice(favoured if favoured and random.random() < hurry else allowed)
        if not matcher.consume_token(token):
            raise RuntimeError(matcher.get_error())
        output.append(token)
    return None
