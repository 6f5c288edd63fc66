"""The token function: a target's choice is a hash of the whole prefix and of the request.

Plain decoding is therefore known without being run. KV of another prefix, or of another request,
shows as another token.
"""

from __future__ import annotations

import zlib
from functools import cache, lru_cache

from specdec_core.messages import EMPTY_HASH, extend_hash, hashes_behind
from specdec_core.request import FinishReason, Request

_FACTOR = 0xD6E8FEB86659FD93
_MASK64 = (1 << 64) - 1


@cache
def salt_of(seed: int, fingerprint: str) -> int:
    """Return a hash of what a request's tokens depend on besides their prefix: the seed, and the
    target's fingerprint."""
    return extend_hash(EMPTY_HASH, (seed, zlib.crc32(fingerprint.encode())))


def next_token(prefix_hash: int, salt: int, vocab_size: int) -> int:
    return (((prefix_hash ^ salt) * _FACTOR & _MASK64) >> 40) % vocab_size


def guess(prefix_hash: int, salt: int, vocab_size: int, agreement: float) -> int:
    """Return a draft's guess of the next token. It is right with probability `agreement`."""
    token = next_token(prefix_hash, salt, vocab_size)
    is_right = (prefix_hash >> 20) % 1000 < 1000 * agreement
    return token if is_right else (token + 1) % vocab_size


@lru_cache(maxsize=4)
def _prompt_hashes(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Return the hashes of the prompt's prefixes. Cached, because a request has a script for each
    fingerprint."""
    return (EMPTY_HASH, *hashes_behind(EMPTY_HASH, prompt))


class Script:
    """Plain decoding of one request on targets of one fingerprint; the oracle for its tokens."""

    def __init__(self, request: Request, fingerprint: str, vocab_size: int) -> None:
        salt = salt_of(request.params.seed, fingerprint)
        self.hashes = list(_prompt_hashes(request.prompt_token_ids))
        """Hashes of every prefix of prompt and output."""
        stops, most = request.params.stop_token_ids, request.params.max_tokens
        tokens: list[int] = []
        while not tokens or (tokens[-1] not in stops and len(tokens) < most):
            tokens.append(next_token(self.hashes[-1], salt, vocab_size))
            self.hashes += hashes_behind(self.hashes[-1], tokens[-1:])
        self.tokens = tuple(tokens)
        self.reason = FinishReason.STOP if tokens[-1] in stops else FinishReason.LENGTH
