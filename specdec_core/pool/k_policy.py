"""How many tokens to draft for a sequence's next round: the seam of the K controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(eq=False, slots=True)
class AcceptanceHistory:
    """What came of one sequence's rounds so far."""

    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    """Index j: rounds with a proposal that accepted j of its tokens."""
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(drafted, accepted) of every round with a proposal, in order."""

    def record(self, num_drafted: int, num_accepted: int) -> None:
        self.num_rounds += 1
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if num_drafted:
            self.histogram += [0] * (num_accepted + 1 - len(self.histogram))
            self.histogram[num_accepted] += 1
            self.steps.append((num_drafted, num_accepted))


class KPolicy(Protocol):
    """Chooses K, once per sequence and round."""

    def num_draft_tokens(self, history: AcceptanceHistory, num_live: int) -> int:
        """K for the next round; `num_live` sequences share the sequence's target. 0 is allowed.

        The pool lowers it to what the configuration and the remaining budget allow.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedK:
    """The same K always."""

    k: int

    def num_draft_tokens(self, history: AcceptanceHistory, num_live: int) -> int:
        return self.k
