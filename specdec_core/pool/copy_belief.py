"""The chance that a copied token is accepted: by how many tokens before it agree.

Prompt lookup copies what followed earlier tokens that equal the last ones. Once those are known to
agree that were copied and accepted, the next one stands behind a longer agreement: a token at place
j behind m that matched is as good as the first one behind m + j. On 120 prompts of Spec-Bench
(demo model, 128 tokens) the sequence's own past foretold no more than that.
"""

from __future__ import annotations

from specdec_core.pool.k_policy import AcceptanceRate

MOST_AGREED = 8
"""From here on tokens are not told apart; a lookup need not compare more."""
_KINDS = (0, 0, 1, 2, 3, 3, 4, 4, 5)
"""By the tokens that agree: those of a kind are accepted about as often."""
_FIRST_GUESSES = {
    False: (0.24, 0.5, 0.69, 0.7, 0.78, 0.91),
    True: (0.18, 0.43, 0.58, 0.64, 0.73, 0.76),
}
"""By whether tokens are drawn: those prompts, greedy and at temperature 0.8."""
_GUESS_WEIGHT = 16.0
"""Trials that it counts for."""
_HALF_LIFE = 300.0
"""Trials of a kind after which one counts half."""


class CopyBelief:
    """Of all sequences together."""

    def __init__(self) -> None:
        self._rates = {
            is_drawn: [AcceptanceRate(_HALF_LIFE) for _ in guesses]
            for is_drawn, guesses in _FIRST_GUESSES.items()
        }
        self._chances = {is_drawn: list(guesses) for is_drawn, guesses in _FIRST_GUESSES.items()}

    def of_run(self, num_agreed: int, count: int, *, is_drawn: bool) -> list[float]:
        """For each of `count` tokens copied in a row: that it and all before it are accepted.

        `num_agreed` tokens before the first one agree.
        """
        chances, chance, run = self._chances[is_drawn], 1.0, []
        for agreed in range(num_agreed, num_agreed + count):
            chance *= chances[_KINDS[agreed if agreed < MOST_AGREED else MOST_AGREED]]
            run.append(chance)
        return run

    def note(self, num_agreed: int, num_accepted: int, num_trials: int, *, is_drawn: bool) -> None:
        """What came of tokens that were copied."""
        rates, chances = self._rates[is_drawn], self._chances[is_drawn]
        for place in range(num_trials):
            kind = _KINDS[min(num_agreed + place, MOST_AGREED)]
            rates[kind].note(int(place < num_accepted), 1)
            guess = _FIRST_GUESSES[is_drawn][kind]
            chances[kind] = rates[kind].estimate(guess, _GUESS_WEIGHT)
