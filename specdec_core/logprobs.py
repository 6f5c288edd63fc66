"""Reported log-probabilities of a token. Plain data; sampling fills it."""

from __future__ import annotations

from typing import NamedTuple


class TokenLogprobs(NamedTuple):
    """Natural logarithms, log_softmax of the target's raw float32 logits."""

    logprob: float
    """Log-probability of the emitted token."""
    top: tuple[tuple[int, float], ...]
    """(ID, logprob) of the most probable IDs, most probable first, ties by ID."""
