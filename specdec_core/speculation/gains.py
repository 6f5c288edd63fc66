"""Expected gain of tokens drafted in a row, if each is accepted with the same chance once those
before it were."""

from __future__ import annotations


def chances_in_a_row(rate: float, count: int) -> list[float]:
    """Return, for each of `count` tokens, the chance that it and all before it are accepted."""
    return [rate**place for place in range(1, count + 1)]


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
