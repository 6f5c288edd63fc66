"""What a pass costs as a function of its rows, learnt from the passes that were run."""

from __future__ import annotations

from dataclasses import dataclass, field

_FINE = 64
"""Up to so many rows each number is kept apart, beyond it in steps of an eighth."""
_MEMORY = 20.0
"""Passes of one number of rows that its mean remembers."""
_SLOPE_SHARE = 0.5
"""Share of a pass that is taken to grow with its rows until passes of other sizes were seen."""
_PRIOR_SPREAD = 0.02
"""Standard deviation of the rows, relative to their mean, at which what was seen counts as much."""
_OUTLIER = 1.5
"""A pass that took longer than so many times what was expected met other work: it counts as long as
that."""
_NUM_TRUSTED = 4


@dataclass(eq=False, slots=True)
class _Mean:
    """Seconds of passes of one number of rows."""

    weight: float = 0.0
    seconds: float = 0.0

    def note(self, seconds: float) -> None:
        self.weight = min(self.weight + 1.0, _MEMORY)
        self.seconds += (seconds - self.seconds) / self.weight


@dataclass(eq=False, slots=True)
class StepCost:
    """seconds = intercept + slope x rows: a line through the means of every number of rows seen.

    A mean is forgotten only by newer passes of its own size. So the line keeps its slope while all
    passes have one size, which alone would say nothing of it.
    """

    _means: dict[int, _Mean] = field(default_factory=dict)
    num_seen: int = 0
    """Passes."""
    _line: tuple[float, float, float] | None = None
    """Mean rows, mean seconds and slope; None: to be drawn again."""

    @property
    def is_known(self) -> bool:
        return self.num_seen > 0

    def observe(self, rows: int, seconds: float) -> None:
        if self.num_seen >= _NUM_TRUSTED:
            seconds = min(seconds, _OUTLIER * self.at(rows))
        self.num_seen += 1
        self._means.setdefault(_bucket(rows), _Mean()).note(seconds)
        self._line = None

    @property
    def slope(self) -> float:
        """Seconds of one more row; never negative, nor more than a row's whole share."""
        return self._fitted()[2]

    def at(self, rows: float) -> float:
        """Seconds of a pass of so many rows."""
        mean_rows, mean_s, slope = self._fitted()
        return mean_s + slope * (rows - mean_rows)

    def _fitted(self) -> tuple[float, float, float]:
        if self._line is None:
            self._line = self._fit()
        return self._line

    def _fit(self) -> tuple[float, float, float]:
        points = [
            (rows, mean.seconds, mean.weight / mean.seconds**2)  # noise grows with the time
            for rows, mean in self._means.items()
        ]
        total = sum(weight for _, _, weight in points)
        mean_rows = sum(rows * weight for rows, _, weight in points) / total
        mean_s = sum(seconds * weight for _, seconds, weight in points) / total
        variance = sum((rows - mean_rows) ** 2 * weight for rows, _, weight in points) / total
        covariance = (
            sum(
                (rows - mean_rows) * (seconds - mean_s) * weight for rows, seconds, weight in points
            )
            / total
        )
        share = mean_s / mean_rows
        prior = (_PRIOR_SPREAD * mean_rows) ** 2
        slope = (covariance + prior * _SLOPE_SHARE * share) / (variance + prior)
        return mean_rows, mean_s, min(max(slope, 0.0), share)


def _bucket(rows: int) -> int:
    if rows <= _FINE:
        return rows
    step = 1 << (rows.bit_length() - 4)
    return round(rows / step) * step
