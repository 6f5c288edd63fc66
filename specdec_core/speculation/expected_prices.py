"""Expected seconds of passes before any was run, from a replica's table or from a guess."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from specdec_core.step_times import StepTime

_GUESSED_ROWS = 8.0
"""Rows that take as long as the fixed part of a pass, if nothing was timed. A CPU without matrix
units has 2, a GPU 100."""

SIZES_TOLD = (1, 8, 32)
"""Numbers of sequences for which the log reports the cost of a drafted row."""
_CANNOT_PAY = 0.9
"""Cost of a row, as a share of a plain token, above which only nearly certain tokens pay."""

_Run = list[tuple[float, float]]
"""Points (x, seconds), ascending."""


class Prices(Protocol):
    """Expected seconds of a pass."""

    def at(self, sequences: int, rows: int, cached: float) -> float:
        """Return the seconds of `rows` rows of sequences that have `cached` tokens each."""
        ...


class GuessedPasses:
    """Guessed prices of a target's passes, in an arbitrary unit."""

    def at(self, sequences: int, rows: int, cached: float) -> float:
        return _GUESSED_ROWS + rows


class PriceTable:
    """A table that interpolates measured times, by sequences, tokens of each, and cached tokens of
    each."""

    def __init__(self, times: Sequence[StepTime]) -> None:
        self._cached_s = _seconds_of_a_cached_token(times)
        runs: dict[int, dict[float, float]] = {}
        for time in times:
            seconds = time.seconds - self._reading_s(time.num_sequences, time.num_cached)
            tokens = time.num_rows / time.num_sequences
            runs.setdefault(time.num_sequences, {}).setdefault(tokens, seconds)
        self._tokens = sorted({tokens for run in runs.values() for tokens in run})
        if len(self._tokens) == 1:
            self._tokens.append(2.0 * self._tokens[0])
        self._counts = sorted(runs)
        self._seconds = _never_falling(
            [_filled(runs, count, self._tokens) for count in self._counts]
        )

    def at(self, sequences: int, rows: int, cached: float) -> float:
        low, share = _place(self._counts, sequences)
        sharing = sequences if len(self._counts) > 1 else self._counts[0]
        tokens, token_share = _place(self._tokens, rows / sharing)
        seconds = 0.0
        for run, weight in ((low, 1.0 - share), (low + 1, share)):
            if weight:
                here = self._seconds[run]
                step = here[tokens + 1] - here[tokens] if token_share else 0.0
                seconds += weight * (here[tokens] + token_share * step)
        return max(seconds, self._seconds[0][0]) + self._reading_s(sequences, cached)

    def _reading_s(self, sequences: int, cached: float) -> float:
        return self._cached_s * sequences * cached


def row_prices(times: Sequence[StepTime]) -> str:
    """Return the cost of a drafted row of every sequence, for the log; empty if it was not
    timed."""
    if len(times) < 2:
        return ""
    table, shares = PriceTable(times), []
    for streams in SIZES_TOLD:
        plain_s = table.at(streams, streams, 0.0)
        share = (table.at(streams, 2 * streams, 0.0) - plain_s) / plain_s
        remark = " (pays only if it is nearly certain)" if share > _CANNOT_PAY else ""
        shares.append(f"{share:.2f} at {streams}{remark}")
    return f"cost of a drafted row, as a share of a plain token, by streams: {', '.join(shares)}"


def _place(points: Sequence[float], x: float) -> tuple[int, float]:
    """Return the point before `x`, and the distance of `x` from it in steps to the next point.

    The first and the last step reach beyond all points.
    """
    if len(points) == 1:
        return 0, 0.0
    low = min(max(bisect_right(points, x) - 1, 0), len(points) - 2)
    return low, (x - points[low]) / (points[low + 1] - points[low])


def _on(run: _Run, x: float) -> float:
    """Return the interpolated seconds of a run at `x`, beyond its points as well."""
    low, share = _place([place for place, _ in run], x)
    return run[low][1] + (share * (run[low + 1][1] - run[low][1]) if share else 0.0)


def _filled(
    runs: dict[int, dict[float, float]], count: int, tokens: Sequence[float]
) -> list[float]:
    """Return the seconds of `count` sequences with each number of tokens.

    A number of tokens that was not timed is taken from this count's others. If this count has no
    others, the seconds grow as they do with other counts.
    """
    own = sorted(runs[count].items())
    if len(own) > 1:
        return [_on(own, one) for one in tokens]
    [(timed, seconds)] = own
    long = {n: sorted(run.items()) for n, run in sorted(runs.items()) if len(run) > 1}
    if not long:
        plain = sorted((n * one, s) for n, run in runs.items() for one, s in run.items())
        return [seconds + _on(plain, count * one) - _on(plain, count * timed) for one in tokens]
    growth = [
        _on([(0, 0.0), *((n, _on(run, one) - _on(run, timed)) for n, run in long.items())], count)
        for one in tokens
    ]
    return [seconds + added for added in growth]


def _never_falling(grid: list[list[float]]) -> list[list[float]]:
    """Return the seconds of a grid in which neither tokens nor sequences make a pass shorter."""
    for run, seconds in enumerate(grid):
        for place in range(len(seconds)):
            if place:
                seconds[place] = max(seconds[place], seconds[place - 1])
            if run:
                seconds[place] = max(seconds[place], grid[run - 1][place])
    return grid


def _seconds_of_a_cached_token(times: Sequence[StepTime]) -> float:
    """Return how much longer a pass takes for one more cached token of one sequence.

    The result is 0 if no size was timed with two numbers of cached tokens.
    """
    added_s = added_tokens = 0.0
    for one in times:
        for other in times:
            if one[:2] == other[:2] and one.num_cached < other.num_cached:
                added_s += other.seconds - one.seconds
                added_tokens += one.num_sequences * (other.num_cached - one.num_cached)
    return max(added_s / added_tokens, 0.0) if added_tokens else 0.0
