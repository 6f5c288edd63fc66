"""How large a message to the coordinator may be: nothing that is allowed elsewhere is larger."""

from __future__ import annotations

from specdec_core.config import PoolConfig
from specdec_core.sampling_params import MAX_LOGPROBS

_BYTES_PER_ID = 4
_LONGEST_CONTEXT = 2**22
"""Tokens; no model of today has a quarter of it. What was emitted is sent again with its prompt."""
_BYTES_PER_BODY_BYTE = 8
"""A byte of text is one id at most, and a number of the body takes fewer bytes than this."""
_BYTES_PER_LOGPROB = 16
"""A field each for id and value, their tags and lengths."""
_REST = 2**20


def most_message_bytes(pool: PoolConfig, max_body_bytes: int) -> int:
    """Of a request with all that it may say, or of a group's answer with all that it may report."""
    request = _BYTES_PER_BODY_BYTE * max_body_bytes + _BYTES_PER_ID * _LONGEST_CONTEXT
    num_chosen = pool.speculation.num_draft_tokens + 1
    tokens = pool.max_group_size * (pool.prefill_chunk + num_chosen)
    answer = tokens * (_BYTES_PER_ID + (MAX_LOGPROBS + 1) * _BYTES_PER_LOGPROB)
    return max(request, answer) + _REST
