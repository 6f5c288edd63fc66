"""Measured times of passes of a few sizes, and the group size that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LEAST_ROWS = 32
"""Minimum rows of a group. Fewer rows never give more tokens per second in a service. A group also
costs time in the service's processes, which the times of passes do not show."""
_MIN_GAIN = 1.1
"""Minimum ratio of tokens per second when the rows are doubled. Below it, more rows only make every
stream slower."""
_MOST_GROWTH = 1.15
"""Maximum ratio of a pass to two passes of half its rows. A higher ratio means that other work
disturbed the measurement."""


class StepTime(NamedTuple):
    """Time of a target's pass, or of all steps of a draft's lease. A draft's rows are the tokens
    that it drafts, an equal number for each sequence."""

    num_sequences: int
    num_rows: int
    seconds: float
    num_cached: int = 0
    """Cached tokens of each sequence; 0 if the replica does not report them."""


def are_plausible(times: Sequence[StepTime]) -> bool:
    """Return False if a pass without drafts took much longer than two passes of half its rows."""
    plain = _plain(times)
    doubles = [(plain[rows], plain[2 * rows]) for rows in plain if 2 * rows in plain]
    return all(double <= 2.0 * _MOST_GROWTH * single for single, double in doubles)


def rows_that_gain(times: Sequence[StepTime], most: int) -> int:
    """Return the rows of a pass up to which a doubling still gives a tenth more tokens per second.

    The result is at least 32 and at most `most`. Unknown gains count as none. They are unknown if
    passes are too slow to time two sizes, or if the times are implausible.
    """
    plain, rows = _plain(times), _LEAST_ROWS
    is_measured = len(plain) >= 2 and are_plausible(times)
    while is_measured and 2 * rows <= most and _gain(plain, rows) >= _MIN_GAIN:
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
    """Return the measured time, or the value on the line through the two sizes around it. Beyond
    the last size, use the line through the last two."""
    sizes = sorted(plain)
    upper = next((i for i, size in enumerate(sizes) if size >= rows and i > 0), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    slope = max(plain[high] - plain[low], 0.0) / (high - low)
    return plain[low] + slope * (rows - low)
