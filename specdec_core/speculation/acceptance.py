"""The chance that a sequence's drafted token is accepted: by its own past, and by that of all.

Where tokens are drawn fewer are accepted than where the likeliest is taken, so the past of all is
that of its kind. How much the own past tells is learnt, too. Where sequences are alike, one that
was unlucky in its first rounds is no worse than the rest; where they differ, a few trials tell them
apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_core.speculation.k_policy import AcceptanceHistory, AcceptanceRate, Source

_WEIGHTS = (16.0, 4.0, 64.0, 256.0)
"""Trials that the past of all may count for in the estimate of one; the first until another has
foretold better."""
_FIRST_GUESS = {False: 0.6, True: 0.4}
"""Where nothing was seen, by whether tokens are drawn. Prompt lookup had 0.69 on 48 prompts of
Spec-Bench with the demo model (greedy, 128 tokens, K = 4), and 0.35 to 0.42 at temperature 0.8."""
_GUESS_WEIGHT = 4.0
"""Trials that it counts for."""
_HALF_LIFE = 300.0
"""Trials of all sequences after which one counts half."""
_LOSS_HALF_LIFE = 2000.0


def _no_kinds() -> dict[bool, AcceptanceRate]:
    return {is_drawn: AcceptanceRate(_HALF_LIFE) for is_drawn in (False, True)}


def _no_losses() -> list[float]:
    return [0.0 for _ in _WEIGHTS]


@dataclass(eq=False, slots=True)
class AcceptanceEstimator:
    """Of one source of drafted tokens."""

    first_guess: Mapping[bool, float] = field(default_factory=lambda: _FIRST_GUESS)
    """By whether tokens are drawn."""
    seen: AcceptanceRate = field(default_factory=lambda: AcceptanceRate(_HALF_LIFE))
    """Of all sequences."""
    _kinds: dict[bool, AcceptanceRate] = field(default_factory=_no_kinds)
    """By whether tokens are drawn."""
    _losses: list[float] = field(default_factory=_no_losses)
    """By weight: squared errors of what it foretold of trials."""
    weight: float = _WEIGHTS[0]
    """That foretold best of late."""

    @property
    def common(self) -> float:
        """Of all together."""
        return self.seen.estimate(self.first_guess[False], _GUESS_WEIGHT)

    def of(self, history: AcceptanceHistory, source: Source) -> float:
        own, alike = history.rates.get(source), self._alike(history)
        return alike if own is None else own.estimate(alike, self.weight)

    def note(
        self, history: AcceptanceHistory, source: Source, num_accepted: int, num_trials: int
    ) -> None:
        """What came of a sequence's proposal."""
        common, own = self._alike(history), history.rate_of(source)
        kept = 0.5 ** (num_trials / _LOSS_HALF_LIFE)
        for place, weight in enumerate(_WEIGHTS):
            foretold = own.estimate(common, weight)
            missed = num_accepted * (1.0 - foretold) ** 2
            missed += (num_trials - num_accepted) * foretold**2
            self._losses[place] = kept * self._losses[place] + missed
        self.weight = _WEIGHTS[self._losses.index(min(self._losses))]
        for rate in (own, self.seen, self._kinds[history.is_drawn]):
            rate.note(num_accepted, num_trials)

    def forget(self, most: float) -> None:
        """Let the past of all sequences count for `most` trials at most."""
        for rate in (self.seen, *self._kinds.values()):
            rate.forget(most)

    def _alike(self, history: AcceptanceHistory) -> float:
        """Of a sequence of this kind without a past."""
        seen = self._kinds[history.is_drawn]
        return seen.estimate(self.first_guess[history.is_drawn], _GUESS_WEIGHT)
