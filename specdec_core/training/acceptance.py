"""Rate at which a target would accept a draft, measured on documents it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REPORTED_K = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutAcceptance:
    """Teacher-forced acceptance on the target's answers. The IDs before a token are always the
    target's."""

    greedy: float
    """Share of tokens whose greedy choice is the same in draft and target."""
    overlap: float
    """Mean of sum_v min(p, q) at temperature 1, a lower bound of 1 - total variation."""
    length: float
    """Tokens committed per round at K = 4, greedily, the target's own token included."""

    @property
    def coupled(self) -> float:
        """Minimum share accepted by coupled sampling at temperature 1 (algorithm.md, section 4)."""
        distance = 1.0 - self.overlap
        return (1.0 - distance) / (1.0 + distance)


def acceptance_length(runs: Sequence[Sequence[bool]], num_draft_tokens: int) -> float:
    """Return the tokens committed per round.

    For each answer, `runs` states which of its tokens agree. A round accepts the tokens that agree,
    up to the first that does not or up to K, and commits one more. The end of an answer may cut its
    last round.
    """
    num_tokens = num_rounds = 0
    for agrees in runs:
        num_tokens += len(agrees)
        position = 0
        while position < len(agrees):
            position += _accepted(agrees[position : position + num_draft_tokens]) + 1
            num_rounds += 1
    return num_tokens / num_rounds if num_rounds else 0.0


def _accepted(agrees: Sequence[bool]) -> int:
    return next((i for i, agree in enumerate(agrees) if not agree), len(agrees))
