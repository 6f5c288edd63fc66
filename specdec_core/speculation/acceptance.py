"""The chance that a sequence's drafted token is accepted.

The estimate combines the sequence's own past with that of all sequences. Sampled tokens are
accepted less often than greedy ones. So the past of all sequences is kept for each of these two
kinds. The weight of a sequence's own past is learnt, too. If sequences are alike, one that was
unlucky in its first rounds is no worse than the rest. If they differ, a few trials distinguish
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_core.speculation.k_policy import AcceptanceHistory, AcceptanceRate, Source

_WEIGHTS = (16.0, 4.0, 64.0, 256.0)
"""Numbers of trials that the past of all may count for in the estimate of one sequence. The first
is used until another has predicted better."""
_FIRST_GUESS = {False: 0.6, True: 0.4}
"""Acceptance before any trial, by whether tokens are sampled. Prompt lookup had 0.69 on 48 prompts
of Spec-Bench with the demo model (greedy, 128 tokens, K = 4). At temperature 0.8 it had 0.35 to
0.42."""
_GUESS_WEIGHT = 4.0
"""Number of trials that the first guess counts for."""
_HALF_LIFE = 300.0
"""Trials of all sequences after which a trial counts half."""
_LOSS_HALF_LIFE = 2000.0


def _no_kinds() -> dict[bool, AcceptanceRate]:
    return {is_drawn: AcceptanceRate(_HALF_LIFE) for is_drawn in (False, True)}


def _no_losses() -> list[float]:
    return [0.0 for _ in _WEIGHTS]


@dataclass(eq=False, slots=True)
class AcceptanceEstimator:
    """Acceptance estimator for one source of drafted tokens."""

    first_guess: Mapping[bool, float] = field(default_factory=lambda: _FIRST_GUESS)
    """Acceptance before any trial, by whether tokens are sampled."""
    seen: AcceptanceRate = field(default_factory=lambda: AcceptanceRate(_HALF_LIFE))
    """Acceptance over all sequences."""
    _kinds: dict[bool, AcceptanceRate] = field(default_factory=_no_kinds)
    """Acceptance over all sequences of a kind, by whether tokens are sampled."""
    _losses: list[float] = field(default_factory=_no_losses)
    """Squared errors of the predictions, one sum for each weight."""
    weight: float = _WEIGHTS[0]
    """Weight whose recent predictions were best."""

    @property
    def common(self) -> float:
        """Estimated acceptance over all sequences."""
        return self.seen.estimate(self.first_guess[False], _GUESS_WEIGHT)

    def of(self, history: AcceptanceHistory, source: Source) -> float:
        own, alike = history.rates.get(source), self._alike(history)
        return alike if own is None else own.estimate(alike, self.weight)

    def note(
        self, history: AcceptanceHistory, source: Source, num_accepted: int, num_trials: int
    ) -> None:
        """Learn from the result of a sequence's proposal."""
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
        """Reduce the weight of the past of all sequences to at most `most` trials."""
        for rate in (self.seen, *self._kinds.values()):
            rate.forget(most)

    def _alike(self, history: AcceptanceHistory) -> float:
        """Return the estimate for a sequence of this kind without a past."""
        seen = self._kinds[history.is_drawn]
        return seen.estimate(self.first_guess[history.is_drawn], _GUESS_WEIGHT)
