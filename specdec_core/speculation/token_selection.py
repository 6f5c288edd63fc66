"""Select the number of a group's drafted tokens that makes the most tokens per second.

The most likely tokens are kept first. Every row commits one token anyway. A drafted token adds the
chance that it and all before it are accepted, and a row to the pass. The number of kept tokens
maximises tokens over seconds. A step of the cost, as after a full tile, is taken as a whole or not
at all. TETRIS (arXiv 2502.15197) chooses in the same way within a given number of rows.

A size is explored ("looked at") if it would be the best at a price that is likely enough. A look
costs the time by which this size is expected to exceed the best. Passes earn a small share of their
time for looks. So all looks together take no more than that share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log2
from operator import attrgetter
from typing import NamedTuple

from specdec_core.speculation.pass_prices import PassPrices


def chances_in_a_row(rate: float, count: int) -> list[float]:
    """Return, for each of `count` tokens, the chance that it and all before it are accepted."""
    return [rate**position for position in range(1, count + 1)]


def expected_accepted(rate: float, count: int) -> float:
    """Return the expected number of accepted tokens among `count` drafted ones."""
    return sum(chances_in_a_row(rate, count))


def num_worthwhile(rate: float, price: float, limit: int) -> int:
    """Return how many tokens in a row earn more than their price."""
    count, chance = 0, rate
    while count < limit and chance > price:
        count += 1
        chance *= rate
    return count


_GAIN = 0.02
"""Minimum relative gain of drafted tokens over none at all. Estimates are noisy. Also, a batch that
ends waits for its last row, which gains the least."""
_UNDRAFTED_MARGIN = 0.1
"""Extra share of their rows' time that drafted tokens must earn, for each doubling of the sequences
without any. The pass of those sequences gets longer without a gain for them."""
_OPTIMISM = 1.25
"""Number of standard deviations by which `optimistic_rate` takes a price to be lower. Exploration
tries a size that would then be the best."""
_LEVELS = 10
"""Number of steps in which chances are distinguished."""


class DraftedRow(NamedTuple):
    """The drafted tokens of one row that may be checked or left out."""

    row: int
    chances: Sequence[float]
    """For each token, the chance that it and all before it are accepted. The chances never rise."""
    num_left: int
    """Tokens that the row may still emit."""


class CandidateSize(NamedTuple):
    num_kept: int
    num_rows: int
    """Number of rows of the pass."""
    tokens_per_second: float
    """Tokens per second, averaged over the possible prices."""
    rate_with_margin: float
    """Tokens per second, if drafted rows took longer by the margin."""
    optimistic_rate: float
    """Tokens per second, if the price is lower by `_OPTIMISM` standard deviations."""
    seconds: float
    """Mean seconds of the round."""


class CandidateBatch(NamedTuple):
    """A batch for which the number of drafted tokens is chosen."""

    num_sequences: int
    """Number of sequences. Each has one row of the pass and gains one token without any drafted
    one."""
    expected: Sequence[float]
    """Entry n: expected number of accepted tokens if the n most likely drafted ones are checked."""
    spent_s: float = 0.0
    """Seconds that the round takes besides the pass, for drafting."""
    num_undrafted: int = 0
    """Number of sequences without drafted tokens."""


def most_likely_first(runs: Sequence[DraftedRow]) -> tuple[list[int], list[float]]:
    """Return the row and the chance of every token, in the order in which they are kept.

    `runs` are in the order of their rows. Tokens of about the same chance are ordered by their
    position. No object is made per token.
    """
    longest = max([len(run.chances) for run in runs])
    buckets: list[list[DraftedRow]] = [[] for _ in range((_LEVELS + 1) * longest)]
    # Rows with more tokens left come first: the last rows of a batch keep its passes to themselves.
    for run in sorted(runs, key=attrgetter("num_left"), reverse=True):
        for position, chance in enumerate(run.chances):
            buckets[int(_LEVELS + 0.5 - _LEVELS * chance) * longest + position].append(run)
    rows: list[int] = []
    chances: list[float] = []
    for number, bucket in enumerate(buckets):
        for run in bucket:
            rows.append(run.row)
            chances.append(run.chances[number % longest])
    return rows, chances


def counts(group: CandidateBatch, cost: PassPrices) -> list[CandidateSize]:
    """Return the candidate sizes: no token, and then the tokens that fill each step of the cost."""
    num_sequences, expected, spent_s, num_undrafted = group
    plain_s, spread = cost.price(num_sequences, num_sequences)
    optimistic_s = plain_s * exp(-_OPTIMISM * spread)
    rate, optimistic = num_sequences / (spent_s + plain_s), num_sequences / (spent_s + optimistic_s)
    sizes = [CandidateSize(0, num_sequences, rate, rate, optimistic, spent_s + plain_s)]
    margin = _UNDRAFTED_MARGIN * log2(1 + num_undrafted)
    num_kept, num_drafted = 0, len(expected) - 1
    while num_kept < num_drafted:
        num_kept = min(cost.last_alike(num_sequences + num_kept + 1) - num_sequences, num_drafted)
        num_rows, tokens = num_sequences + num_kept, num_sequences + expected[num_kept]
        pass_s, spread = cost.price(num_sequences, num_rows)
        seconds = spent_s + pass_s * exp(spread**2 / 2.0)
        rate = tokens / seconds
        with_margin = tokens / (seconds + margin * max(seconds - spent_s - plain_s, 0.0))
        optimistic = tokens / (spent_s + max(pass_s * exp(-_OPTIMISM * spread), optimistic_s))
        sizes.append(CandidateSize(num_kept, num_rows, rate, with_margin, optimistic, seconds))
    return sizes


def best(sizes: Sequence[CandidateSize]) -> CandidateSize:
    """Return the size with the most tokens per second, or the first if no other gains enough."""
    none, *some = sizes
    most = max(some, key=attrgetter("tokens_per_second"), default=none)
    is_more = most.tokens_per_second > (1.0 + _GAIN) * none.tokens_per_second
    return most if is_more and most.rate_with_margin > none.rate_with_margin else none


_FIRST_CREDIT = 1.0
"""Time for looks at the start, in passes."""
_EARNED_SHARE = 0.01
"""Share of a pass that each pass adds to the time for looks."""
_MAX_CREDIT = 2.0
"""Maximum time that is kept for looks, in passes."""
_MIN_LOOK = 0.1
"""Minimum price of a look, in passes. It limits looks at sizes that are nearly as good as the
best."""
_LOOK_GAIN = 0.02
"""Relative gain over the best that a size must promise at a likely price."""


@dataclass(eq=False, slots=True)
class Exploration:
    """Exploration of sizes, within the time that passes have earned for looks."""

    credit: float = _FIRST_CREDIT
    """Passes that looks may still take."""

    def chosen(self, sizes: Sequence[CandidateSize], best: CandidateSize) -> CandidateSize:
        """Return the size to look at, which may gain most for its price, or else `best`."""
        self.credit = min(self.credit + _EARNED_SHARE, _MAX_CREDIT)
        threshold = (1.0 + _LOOK_GAIN) * max(best.tokens_per_second, best.optimistic_rate)
        looked_at, most, spent = best, 0.0, 0.0
        for one in sizes:
            if one.optimistic_rate > threshold:
                lost_share = 1.0 - one.tokens_per_second / best.tokens_per_second
                price = max(lost_share * one.seconds / best.seconds, _MIN_LOOK)  # in passes
                gain = (one.optimistic_rate - threshold) / price
                if price <= self.credit and gain > most:
                    looked_at, most, spent = one, gain, price
        self.credit -= spent
        return looked_at
