"""The chance that a sequence's drafted token is accepted.

The estimate combines the sequence's own past with that of all sequences. Sampled tokens are
accepted less often than greedy ones. So the past of all sequences is kept for each of these two
kinds. The weight of a sequence's own past is learnt, too. If sequences are alike, one that was
unlucky in its first rounds is no worse than the rest. If they differ, a few trials distinguish
them.

A drafter may say the kind of each token. Trials are then grouped by source and kind. For each kind,
a sequence's own past and that of all sequences give the estimate. Prompt lookup tells kinds by the
length of the match. Of the 9,000 most likely of 36,305 copied tokens (120 prompts of Spec-Bench,
greedy), 8,199 were right. With the own past alone it was 7,521, and with the kind alone 7,311.

Prompt lookup and the choice among its tokens take a fiftieth of a round of 8 sequences, and the
target waits for them. If the answers of a batch repeat nothing, the lookup of every pass finds
nothing useful. So a drafter whose offers are not worth a row is skipped, longer each time. Offered
tokens that were not checked are still compared. This soon detects a batch that begins to repeat
itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import repeat
from math import sqrt

from specdec_core.speculation.drafter import Offer


@dataclass(eq=False, slots=True)
class AcceptanceRate:
    """Recent chance that a drafted token is accepted once those before it were.

    A trial is a drafted token that was accepted, or the one at which a proposal broke.
    """

    half_life: float
    """Trials after which a trial counts half."""
    num_accepted: float = 0.0
    num_trials: float = 0.0

    def note(self, num_accepted: int, num_trials: int) -> None:
        kept = 0.5 ** (num_trials / self.half_life)
        self.num_accepted = self.num_accepted * kept + num_accepted
        self.num_trials = self.num_trials * kept + num_trials

    def estimate(self, prior: float, weight: float) -> float:
        """Return the estimated chance, with `prior` counted as `weight` trials."""
        return (self.num_accepted + weight * prior) / (self.num_trials + weight)

    def forget(self, most: float) -> None:
        """Reduce the weight of what was seen so far to at most `most` trials."""
        kept = min(most / self.num_trials, 1.0) if self.num_trials else 1.0
        self.num_accepted *= kept
        self.num_trials *= kept


_RECENT = 32.0
"""Half-life of one sequence's trials. A text changes its nature within a few hundred tokens."""
_recent_rates = partial(defaultdict[str, AcceptanceRate], partial(AcceptanceRate, _RECENT))


@cache
def _step(num_drafted: int, num_accepted: int) -> tuple[int, int]:
    """Return one shared object for all equal rounds, because histories of live sequences are
    long."""
    return num_drafted, num_accepted


@dataclass(eq=False, slots=True)
class AcceptanceHistory:
    """Results of one sequence's rounds so far."""

    is_drawn: bool = False
    """Whether its tokens are sampled, at a temperature above 0."""
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)
    """(drafted, accepted) of every round with a proposal, in order."""
    rates: defaultdict[str, AcceptanceRate] = field(default_factory=_recent_rates)
    """Acceptance rates by source, or source and kind (AcceptanceEstimator.key), for policies that
    learn. Only those seen so far are present."""

    def record(self, num_drafted: int, num_accepted: int) -> None:
        self.num_rounds += 1
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if num_drafted:
            self.steps.append(_step(num_drafted, num_accepted))


_WEIGHTS = (16.0, 4.0, 64.0, 256.0)
"""Numbers of trials that the past of all may count for in the estimate of one sequence. The first
is used until another has predicted better."""
_FIRST_GUESS = {False: 0.6, True: 0.4}
"""Acceptance before any trial, by whether tokens are sampled, if the drafter has no estimate.
Prompt lookup had 0.69 on 48 prompts of Spec-Bench with the demo model (greedy, 128 tokens, K = 4).
At temperature 0.8 it had 0.35 to 0.42."""
_GUESS_WEIGHT = 4.0
"""Number of trials that the first guess counts for."""
_HALF_LIFE = 300.0
"""Trials of all sequences after which a trial counts half."""
_LOSS_HALF_LIFE = 2000.0


def _by_drawn() -> dict[bool, AcceptanceRate]:
    return {is_drawn: AcceptanceRate(_HALF_LIFE) for is_drawn in (False, True)}


def _no_losses() -> list[float]:
    return [0.0 for _ in _WEIGHTS]


@dataclass(eq=False, slots=True)
class AcceptanceEstimator:
    """Acceptance estimator for one source of drafted tokens, or for one kind of its tokens."""

    key: str
    """Key of its rates in the histories of sequences."""
    seen: AcceptanceRate = field(default_factory=lambda: AcceptanceRate(_HALF_LIFE))
    """Acceptance over all sequences."""
    _by_drawn: dict[bool, AcceptanceRate] = field(default_factory=_by_drawn)
    """Acceptance over all sequences of a kind, by whether tokens are sampled."""
    _losses: list[float] = field(default_factory=_no_losses)
    """Squared errors of the predictions, one sum for each weight."""
    weight: float = _WEIGHTS[0]
    """Weight whose recent predictions were best."""

    @property
    def common(self) -> float:
        """Estimated acceptance over all sequences."""
        return self.seen.estimate(_FIRST_GUESS[False], _GUESS_WEIGHT)

    def of(self, history: AcceptanceHistory, prior: float | None = None) -> float:
        """Return the estimate for a sequence. `prior`: the drafter's own estimate, if any."""
        own, alike = history.rates.get(self.key), self._alike(history.is_drawn, prior)
        return alike if own is None else own.estimate(alike, self.weight)

    def note(
        self,
        history: AcceptanceHistory,
        num_accepted: int,
        num_trials: int,
        prior: float | None = None,
    ) -> None:
        """Learn from the result of a sequence's proposal."""
        common, own = self._alike(history.is_drawn, prior), history.rates[self.key]
        kept = 0.5 ** (num_trials / _LOSS_HALF_LIFE)
        for index, weight in enumerate(_WEIGHTS):
            predicted = own.estimate(common, weight)
            missed = num_accepted * (1.0 - predicted) ** 2
            missed += (num_trials - num_accepted) * predicted**2
            self._losses[index] = kept * self._losses[index] + missed
        self.weight = _WEIGHTS[self._losses.index(min(self._losses))]
        for rate in (own, self.seen, self._by_drawn[history.is_drawn]):
            rate.note(num_accepted, num_trials)

    def forget(self, most: float) -> None:
        """Reduce the weight of the past of all sequences to at most `most` trials."""
        for rate in (self.seen, *self._by_drawn.values()):
            rate.forget(most)

    def _alike(self, is_drawn: bool, prior: float | None) -> float:
        """Return the estimate for a sequence of this kind without a past."""
        guess = _FIRST_GUESS[is_drawn] if prior is None else prior
        return self._by_drawn[is_drawn].estimate(guess, _GUESS_WEIGHT)


class _Kinds(dict[int, AcceptanceEstimator]):
    """Kinds of a source's tokens that were seen so far."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __missing__(self, kind: int) -> AcceptanceEstimator:
        self[kind] = estimator = AcceptanceEstimator(f"{self._source}/{kind}")
        return estimator


class AcceptanceByKind:
    """Acceptance of a source's tokens by their kinds, for offers with chances (drafter.Offer)."""

    def __init__(self, source: str) -> None:
        self._of_kind = _Kinds(source)

    def of_run(self, history: AcceptanceHistory, offer: Offer) -> list[float]:
        """Return, for each offered token, the chance that it and all before it are accepted."""
        chance, run = 1.0, []
        for kind, prior in zip(offer.kinds or repeat(0), offer.chances, strict=False):
            chance *= self._of_kind[kind].of(history, prior)
            run.append(chance)
        return run

    def note(
        self, history: AcceptanceHistory, offer: Offer, num_accepted: int, num_trials: int
    ) -> None:
        """Learn which of the offer's first `num_trials` tokens were accepted."""
        for index in range(num_trials):
            kind, prior = offer.kinds[index] if offer.kinds else 0, offer.chances[index]
            self._of_kind[kind].note(history, int(index < num_accepted), 1, prior)


FEW = 4
"""Number of sequences for which no local drafter rests. Prompt lookup takes next to nothing of
their rounds."""
_MISSES = 8
"""Consecutive groups with offered tokens, of which none was worth a row, before the first rest."""
_FIRST_REST = 4
"""Target passes of the first rest, for groups no smaller. One pass with the drafter follows. If
that was a miss too, the next rest is twice as long."""
_LONGEST_REST = 32


@dataclass(eq=False, slots=True)
class DrafterBackoff:
    """Back-off of one drafter for a scheduler's groups. Counts target passes, reads no clock."""

    num_left: int = 0
    """Passes left of the present rest."""
    _next_rest: int = _FIRST_REST
    """Passes of the next rest."""
    _num_misses: int = 0
    """Number of last consecutive groups with offered tokens of which none was checked."""
    _missed_size: int = 0
    """Number of sequences of the last of these groups."""
    _num_offers: int = 0
    """Number of proposals from before the rest whose first token was compared during it."""
    _surprise: float = 0.0
    """Number of these first tokens that were right, less the number predicted."""

    def allows(self, size: int) -> bool:
        """Return whether the drafter is worth its time for a group of `size` sequences."""
        return not self.num_left or size < self._missed_size

    def note_choice(self, size: int, num_kept: int) -> None:
        """Note the choice for a group with offered tokens, of which `num_kept` are checked."""
        if num_kept:
            self._end()
        elif size > FEW:
            self._note_miss(size)

    def _note_miss(self, size: int) -> None:
        """Note a group of which no offered token is checked. After several, the rest begins."""
        self._num_misses += 1
        self._missed_size = size
        if self._num_misses >= _MISSES:
            self.num_left = self._next_rest + 1  # the pass that is chosen counts
            self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
            self._num_offers, self._surprise = 0, 0.0

    def note_offer(self, is_right: bool, predicted: float) -> None:
        """Note whether the first token offered to a sequence was right, and its predicted
        chance."""
        self._num_offers += 1
        self._surprise += is_right - predicted

    def note_pass(self) -> None:
        """Note the end of a target pass."""
        self.num_left = max(self.num_left - 1, 0)
        if self._surprise > 1.0 + sqrt(self._num_offers):
            self._end()

    def _end(self) -> None:
        """End the rest, because offered tokens may be worth a row."""
        self._num_misses, self.num_left = 0, 0
        self._next_rest, self._surprise = _FIRST_REST, 0.0
