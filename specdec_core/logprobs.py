"""What is reported of a token's probability. Plain data; sampling fills it."""

from __future__ import annotations

from typing import NamedTuple


class TokenLogprobs(NamedTuple):
    """Natural logarithms, log_softmax of the target's raw float32 logits."""

    logprob: float
    """Of the emitted token."""
    top: tuple[tuple[int, float], ...]
    """(id, logprob) of the most probable ids, most probable first, ties by id."""
