"""Whether a figure grows: a line through its second half, and how far it strays from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

_HOUR_S = 3600.0
_SIGMAS = 3.0
_NEGLIGIBLE = 0.01
"""Of the level, over the time that was watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A line through samples."""

    level: float
    """Their mean."""
    per_hour: float
    error_per_hour: float
    """Standard error of `per_hour`, were the samples independent."""
    watched_s: float

    @property
    def grows(self) -> bool:
        """Beyond its noise, and by more than a trifle."""
        growth = self.per_hour * self.watched_s / _HOUR_S
        is_clear = self.per_hour > _SIGMAS * self.error_per_hour
        return is_clear and growth > _NEGLIGIBLE * abs(self.level)


def second_half(seconds: Sequence[float], values: Sequence[float]) -> Trend:
    """Of the later half, when caches and pools are full; at least three samples are needed."""
    begin = len(values) // 2
    return fit(seconds[begin:], values[begin:])


def fit(seconds: Sequence[float], values: Sequence[float]) -> Trend:
    """Least squares."""
    if len(values) < 3:
        raise ValueError(f"{len(values)} samples are too few for a line: at least 3")
    middle_s, level = fmean(seconds), fmean(values)
    offsets = [second - middle_s for second in seconds]
    spread = sum(offset * offset for offset in offsets)
    slope = sum(o * (v - level) for o, v in zip(offsets, values, strict=True)) / spread
    strays = (v - level - slope * o for o, v in zip(offsets, values, strict=True))
    variance = sum(stray * stray for stray in strays) / (len(values) - 2)
    return Trend(
        level=level,
        per_hour=slope * _HOUR_S,
        error_per_hour=math.sqrt(variance / spread) * _HOUR_S,
        watched_s=seconds[-1] - seconds[0],
    )
