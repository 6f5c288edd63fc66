"""Compares drafted tokens with the target's choices: no model call, no state.

Under coupled sampling (algorithm.md section 4) the target's choice at a position does not depend on
the draft. At any temperature, a drafted token is accepted if and only if it equals that choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specdec_core.logprobs import TokenLogprobs


class Verdict(NamedTuple):
    """Tokens that one round commits for one sequence."""

    num_accepted: int
    """n: length of the longest proposal prefix that equals the target's choices, 0 <= n <= K."""
    tokens: tuple[int, ...]
    """The n accepted tokens and the next token, n + 1 in all. The next token is the target's choice
    at the first mismatch, or the bonus token when all K were accepted."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry per token if the request asked for them, otherwise empty."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of the prompt tokens that the row had to score."""


def verify(proposal: Sequence[int], choices: Sequence[int]) -> Verdict:
    """Compare K drafted tokens with the target's K + 1 choices at the same positions."""
    assert len(choices) == len(proposal) + 1, "the target chooses once behind every drafted token"
    num_accepted = 0
    while num_accepted < len(proposal) and proposal[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, tuple(choices[: num_accepted + 1]))
