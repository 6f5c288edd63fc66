"""The maximum size of a message to the coordinator. All messages allowed elsewhere are smaller."""

from __future__ import annotations

from specdec_core.config import SchedulerConfig
from specdec_core.sampling_params import MAX_LOGPROBS

_BYTES_PER_ID = 4
_LONGEST_CONTEXT = 2**22
"""Maximum context in tokens. No model of today has a quarter of it.

Tokens that were emitted are sent again with their prompt.
"""
_BYTES_PER_BODY_BYTE = 8
"""A byte of text is at most one ID, and a number in the body takes fewer bytes than this."""
_BYTES_PER_LOGPROB = 16
"""One field for the ID and one for the value, with their tags and lengths."""
_REST = 2**20


def most_message_bytes(config: SchedulerConfig, max_body_bytes: int) -> int:
    """Return the maximum size of a message to the coordinator.

    It holds a request with everything it may set, or a group's answer with everything it may
    report.
    """
    request = _BYTES_PER_BODY_BYTE * max_body_bytes + _BYTES_PER_ID * _LONGEST_CONTEXT
    num_chosen = config.speculation.num_draft_tokens + 1
    tokens = config.max_group_size * (config.prefill_chunk + num_chosen)
    answer = tokens * (_BYTES_PER_ID + (MAX_LOGPROBS + 1) * _BYTES_PER_LOGPROB)
    return max(request, answer) + _REST
