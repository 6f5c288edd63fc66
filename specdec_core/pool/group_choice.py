"""How many of a group's drafted tokens, the likeliest first, make the most tokens per second.

Every row commits one token anyway. A drafted one adds the chance that it and all before it are
accepted, and a row to the pass. As many are kept as make tokens over seconds greatest; a step of
the cost, as behind a full tile, is taken as a whole or not at all (TETRIS, arXiv 2502.15197,
chooses alike within a given number of rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2
from typing import NamedTuple

from specdec_core.pool.step_costs import StepCost

_GAIN = 0.05
"""By so much drafted tokens must beat none at all, relatively: estimates are noisy, and a batch
that ends waits for its last row, which gains the least."""
_BARE_MARGIN = 0.1
"""By so much more than the time of their rows they must earn with each doubling of the sequences
that have none, whose pass gets longer for nothing."""
_ALIKE = 0.1
"""Steps in which chances are told apart."""


class DraftedToken(NamedTuple):
    """One that may be checked or left out."""

    chance: float
    """That it and all before it are accepted."""
    place: int
    """In its row's proposal."""
    row: int
    num_left: int
    """Tokens that its row may still emit."""


class Count(NamedTuple):
    num_kept: int
    num_rows: int
    """Of the pass."""
    tokens_per_second: float
    worth: float
    """Tokens per second, if drafted rows took longer by the margin."""


class Chances:
    """Of the drafted tokens, in the order in which they are kept."""

    def __init__(self, listed: Sequence[float]) -> None:
        self._listed = listed

    def __len__(self) -> int:
        return len(self._listed)

    def expected(self, first: int, end: int) -> float:
        """Accepted ones of those from `first` on, before `end`."""
        return sum(self._listed[first:end])


class ChancesByPlace:
    """The same of `size` rows alike, by the place in the proposal: nothing is listed."""

    def __init__(self, rate: float, size: int, num_places: int) -> None:
        self._rate = rate
        self._size = size
        self._num_places = num_places

    def __len__(self) -> int:
        return self._size * self._num_places

    def expected(self, first: int, end: int) -> float:
        """See Chances."""
        size, total = self._size, 0.0
        while first < end:
            place = first // size
            next_place = min((place + 1) * size, end)
            total += (next_place - first) * self._rate ** (place + 1)
            first = next_place
        return total


class Group(NamedTuple):
    """What is to be chosen for."""

    num_sequences: int
    num_rows: int
    """Of the pass without any of `chances`."""
    num_tokens: float
    """Expected without them."""
    chances: Chances | ChancesByPlace
    spent_s: float = 0.0
    """What the round takes besides the pass: drafting."""
    num_bare: int = 0
    """Sequences without drafted tokens."""


def likeliest_first(tokens: Iterable[DraftedToken]) -> list[DraftedToken]:
    """Among those alike, of who has the most left: the last rows of a batch keep its passes to
    themselves."""
    return sorted(tokens, key=_order)


def counts(group: Group, cost: StepCost) -> list[Count]:
    """No token, and then as many as fill every step of the cost that was told apart."""
    plain_s = cost.at(group.num_sequences, group.num_rows)
    margin = _BARE_MARGIN * log2(1 + group.num_bare)
    num_kept, tokens = 0, group.num_tokens
    rate = tokens / (group.spent_s + plain_s)
    found = [Count(num_kept, group.num_rows, rate, rate)]
    num_drafted = len(group.chances)
    while num_kept < num_drafted:
        full = min(cost.last_alike(group.num_rows + num_kept + 1) - group.num_rows, num_drafted)
        tokens += group.chances.expected(num_kept, full)
        num_kept = full
        num_rows = group.num_rows + num_kept
        added_s = cost.at(group.num_sequences, num_rows) - plain_s
        seconds = group.spent_s + plain_s + added_s
        worth = tokens / (seconds + margin * max(added_s, 0.0))
        found.append(Count(num_kept, num_rows, tokens / seconds, worth))
    return found


def best(found: Sequence[Count]) -> Count:
    none, *some = found
    most = max(some, key=lambda count: count.tokens_per_second, default=none)
    is_more = most.tokens_per_second > (1.0 + _GAIN) * none.tokens_per_second
    return most if is_more and most.worth > none.worth else none


def _order(token: DraftedToken) -> tuple[int, int, int, int]:
    return -round(token.chance / _ALIKE), token.place, -token.num_left, token.row
