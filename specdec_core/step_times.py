"""What passes of a few sizes took when they were timed, and the group size that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LEAST_ROWS = 32
"""Fewer never make more tokens per second of a service: a group costs its processes time besides
the pass, which the times of passes do not show."""
_MIN_GAIN = 1.1
"""Tokens per second of twice as many rows over those of as many: with less, more rows only make
every stream slower."""
_MOST_GROWTH = 1.15
"""Seconds of a pass over those of passes of half its rows, twice: more is other work's doing."""


class StepTime(NamedTuple):
    """A target's pass, or all steps of a draft's lease, whose rows are the tokens that it drafts:
    as many for each sequence."""

    num_sequences: int
    num_rows: int
    seconds: float
    num_cached: int = 0
    """Cached tokens of each sequence; 0 where the replica does not tell."""


def are_plausible(times: Sequence[StepTime]) -> bool:
    """Whether no pass without drafts took much longer than its rows would have in two passes."""
    plain = _plain(times)
    doubles = [(plain[rows], plain[2 * rows]) for rows in plain if 2 * rows in plain]
    return all(double <= 2.0 * _MOST_GROWTH * single for single, double in doubles)


def rows_that_gain(times: Sequence[StepTime], most: int) -> int:
    """Rows of a pass up to which twice as many still make a tenth more tokens per second, at least
    32 and at most `most`. What cannot be told gains nothing: passes so slow that two sizes could
    not be timed, times that make no sense.
    """
    plain, rows = _plain(times), _LEAST_ROWS
    is_told = len(plain) >= 2 and are_plausible(times)
    while is_told and 2 * rows <= most and _gain(plain, rows) >= _MIN_GAIN:
        rows *= 2
    return min(rows, most)


def _plain(times: Sequence[StepTime]) -> dict[int, float]:
    """Return the seconds of passes without drafts by their rows, with few cached tokens."""
    least = min((time.num_cached for time in times), default=0)
    return {
        time.num_rows: time.seconds
        for time in times
        if time.num_rows == time.num_sequences and time.num_cached == least
    }


def _gain(plain: dict[int, float], rows: int) -> float:
    return 2.0 * _seconds(plain, rows) / _seconds(plain, 2 * rows)


def _seconds(plain: dict[int, float], rows: int) -> float:
    """As timed, or on the line through the two sizes around it; through the last two beyond."""
    sizes = sorted(plain)
    upper = next((i for i, size in enumerate(sizes) if size >= rows and i > 0), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    slope = max(plain[high] - plain[low], 0.0) / (high - low)
    return plain[low] + slope * (rows - low)
