"""Seconds of a pass by its sequences and rows, learnt from the passes that were run.

A line gives the seconds of sizes that no pass had yet. If passes of a size were seen, their seconds
correct the line. Kernels have steps, which the line does not follow.

A machine is slower at times, for passes of all sizes, while only passes of one size are run. So all
costs are stored at one pace, and the recent pace is stored separately.

The line goes through weighted points in few dimensions, and its slopes are never negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log
from statistics import median
from typing import NamedTuple

_PRIOR_SPREAD = 0.02
"""Standard deviation of a coordinate, relative to its mean, at which data and prior count the
same."""


class Point(NamedTuple):
    at: tuple[float, ...]
    value: float
    weight: float


def fit_line(points: Sequence[Point], first_share: float) -> tuple[float, list[float]]:
    """Return the base and the slopes of the least-squares line; none is negative.

    If the points do not determine a slope, the first coordinate makes `first_share` of the mean
    value and the others nothing.
    """
    total, mean_value, mean = _means(points)
    size = len(mean)
    square, product = _moments(points, mean, mean_value, total)
    for i in range(size):
        ridge = (_PRIOR_SPREAD * mean[i]) ** 2
        square[i][i] += ridge
        if i == 0:
            product[i] += ridge * first_share * mean_value / mean[i]
    slopes = _non_negative(square, product)
    base = mean_value - sum(slope * at for slope, at in zip(slopes, mean, strict=True))
    if base >= 0.0:
        return base, slopes
    for i in range(size):
        product[i] += mean[i] * mean_value  # moments about the origin, through which the line goes
        for j in range(size):
            square[i][j] += mean[i] * mean[j]
    return 0.0, _non_negative(square, product)


def _means(points: Sequence[Point]) -> tuple[float, float, list[float]]:
    """Return the total weight, and the means of values and coordinates."""
    total = sum_value = 0.0
    sums = [0.0 for _ in points[0].at]
    for at, value, weight in points:
        total += weight
        sum_value += value * weight
        for i, x in enumerate(at):
            sums[i] += x * weight
    return total, sum_value / total, [one / total for one in sums]


def _moments(
    points: Sequence[Point], mean: Sequence[float], mean_value: float, total: float
) -> tuple[list[list[float]], list[float]]:
    size = range(len(mean))
    square = [[0.0 for _ in size] for _ in size]
    product = [0.0 for _ in size]
    for at, value, weight in points:
        off = [x - middle for x, middle in zip(at, mean, strict=True)]
        share, off_value = weight / total, value - mean_value
        for i in size:
            part, row = share * off[i], square[i]
            product[i] += part * off_value
            for j in size:
                row[j] += part * off[j]
    return square, product


def _non_negative(square: Sequence[Sequence[float]], product: Sequence[float]) -> list[float]:
    """Return the slopes of least squares. The most negative slope is left out, one by one, until
    none is negative."""
    slopes = [0.0 for _ in product]
    active = [i for i in range(len(product)) if square[i][i] > 0.0]
    while active:
        solution = _solve(
            [[square[i][j] for j in active] for i in active], [product[i] for i in active]
        )
        least, index = min(zip(solution, active, strict=True))
        if least >= 0.0:
            for i, slope in zip(active, solution, strict=True):
                slopes[i] = slope
            break
        active.remove(index)
    return slopes


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve by Gauss's elimination. The ridge keeps the matrix positive definite, so no row is
    swapped."""
    size = len(right)
    for i in range(size):
        for row in range(i + 1, size):
            factor = matrix[row][i] / matrix[i][i]
            right[row] -= factor * right[i]
            for column in range(i, size):
                matrix[row][column] -= factor * matrix[i][column]
    solution = [0.0 for _ in right]
    for i in reversed(range(size)):
        others = sum(matrix[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (right[i] - others) / matrix[i][i]
    return solution


_FINE = 4
"""Classes of sizes per octave. Sizes below 8 have a class each. With 8 classes it took longer to
find the best size, because passes of each class must be seen."""
_MEMORY = 50.0
"""Passes of one size that its mean remembers."""
_PACE_SHARE = 0.1
"""Share of the surprise of a well-known size that is attributed to the machine's pace."""
_LINE_WEIGHT = 2.0
"""Weight of the line, in passes, next to the passes that were seen of a size."""
_OUTLIER = log(1.5)
"""Deviation of a pass from those of its size, as a logarithm, from which one of them met other
work."""
_NUM_IN_A_ROW = 3
"""Number of consecutive outliers, all slower or all faster, that show a new pace of the machine."""
_NUM_TRUSTED = 4
"""Number of passes whose seconds are trusted as the cost of a size. Fewer may all have met other
work."""
_DOUBTED = 0.5
"""Maximum weight, in passes, of a size with fewer passes once it is in doubt."""
_TIMED_WEIGHT = 5.0
"""Weight, in passes, of a size that was timed before any pass was run here."""
_NUM_FIRST = 4
"""Number of first passes whose median gives the pace relative to the timed passes. The pace
includes the host's part, longer prefixes and a busy machine."""
_CONVERGED = 16.0
"""Passes of a size after which one more moves the line too little to refit it for each pass."""
_DRAW_EVERY = 8
"""Passes after which the line is refitted anyway. Refitting takes 0.1 ms, and a target would wait
for it."""


@dataclass(eq=False, slots=True)
class _Size:
    """Means over the passes of about one size."""

    weight: float = 0.0
    seconds: float = 0.0
    """Mean seconds at a pace of 1."""
    sequences: float = 0.0
    rows: float = 0.0
    num_outliers: int = 0
    """Number of its last passes that were outliers."""

    def learn(self, surprise: float) -> None:
        self.weight = min(self.weight + 1.0, _MEMORY)
        self.seconds *= exp(surprise / self.weight)

    def begin(self, surprise: float) -> None:
        """Replace the mean seconds by this pass alone."""
        self.seconds, self.weight, self.num_outliers = self.seconds * exp(surprise), 1.0, 0

    def note(self, sequences: int, rows: int) -> None:
        """Add a pass to the mean sequences and rows. Its seconds are added separately."""
        share = 1.0 / max(self.weight, 1.0)
        self.sequences += (sequences - self.sequences) * share
        self.rows += (rows - self.rows) * share


@dataclass(frozen=True, slots=True)
class CostLine:
    """Linear cost: base_s + row_s * rows + sequence_s * sequences, in seconds."""

    base_s: float
    row_s: float
    sequence_s: float

    def at(self, sequences: float, rows: float) -> float:
        return self.base_s + self.row_s * rows + self.sequence_s * sequences

    def times(self, pace: float) -> CostLine:
        return CostLine(pace * self.base_s, pace * self.row_s, pace * self.sequence_s)


@dataclass(eq=False, slots=True)
class CostModel:
    """Cost model: seconds of a pass by its numbers of sequences and rows.

    Only newer passes of the same size replace the mean of a size. So the line keeps its slope while
    all passes have one size, which alone would not show a slope. Changes that all recent passes
    have in common are the machine's pace.
    """

    slope_share: float = 0.5
    """Share of a pass that is taken to grow with its rows until passes of other sizes were seen."""
    num_seen: int = 0
    """Number of passes that were observed."""
    pace: float = 1.0
    """Seconds of recent passes, relative to the stored seconds."""
    was_timed: bool = False
    """Whether several sizes were timed before passes were run here."""
    _sizes: dict[tuple[int, int], _Size] = field(default_factory=dict)
    _line: CostLine | None = None
    """Line at a pace of 1. None: it must be fitted again."""
    _outliers: list[float] = field(default_factory=list)
    """Surprises of the last consecutive passes, all outliers on one side."""
    _first: list[float] = field(default_factory=list)
    """Surprises of the first passes, if some sizes were timed."""
    _computed: dict[tuple[int, int], float] = field(default_factory=dict)
    """Answers of `at` since the last pass. Plans ask for the same sizes again and again."""

    @property
    def is_known(self) -> bool:
        return len(self._sizes) > 0

    def expect(self, sequences: int, rows: int, seconds: float) -> None:
        """Take the measured seconds of a size, unless a pass was run or the size is already
        known."""
        key = _size_class(sequences, rows)
        if self.num_seen or key in self._sizes:
            return
        self._computed.clear()
        self.was_timed = len(self._sizes) > 0
        size = self._sizes[key] = _Size(weight=_TIMED_WEIGHT, seconds=seconds)
        size.sequences, size.rows = sequences, rows
        self._line = None

    def observe(self, sequences: int, rows: int, seconds: float) -> None:
        if seconds <= 0.0:
            return  # a driver's clock may stand still
        self._learn(sequences, rows, seconds)
        self._computed.clear()

    def _learn(self, sequences: int, rows: int, seconds: float) -> None:
        if self.was_timed and len(self._first) < _NUM_FIRST:
            self._first.append(log(seconds / self.at(sequences, rows)) + log(self.pace))
            self.pace = exp(median(self._first))
            self.num_seen += 1
            return
        size = self._sizes.setdefault(_size_class(sequences, rows), _Size())
        if size.weight:
            self._compare(size, log(seconds / (self.pace * size.seconds)))
        else:
            is_trusted = self.num_seen >= _NUM_TRUSTED
            most = exp(_OUTLIER) * self.at(sequences, rows) if is_trusted else seconds
            size.seconds = min(seconds, most) / self.pace
            size.weight = 1.0
        self.num_seen += 1
        size.note(sequences, rows)
        if size.weight < _CONVERGED or self.num_seen % _DRAW_EVERY == 0:
            self._line = None

    def _compare(self, size: _Size, surprise: float) -> None:
        """Learn from a pass of a size that was seen before, for this size and for the pace."""
        if abs(surprise) <= _OUTLIER:
            size.num_outliers = 0
            self._outliers.clear()
            size.learn(surprise)
            self.pace *= exp(_PACE_SHARE * size.weight / (size.weight + _LINE_WEIGHT) * surprise)
        elif size.weight > _NUM_TRUSTED:
            self._note_outlier(size, surprise)
        elif surprise > 0.0:
            size.learn(_OUTLIER)
        else:
            self._doubt_few()
            size.begin(surprise)

    def _note_outlier(self, size: _Size, surprise: float) -> None:
        """Count an outlier and decide what caused it.

        A single outlier is other work. Several in a row show a new pace of the machine. Several of
        one size, among good passes of other sizes, show a new cost of this size.
        """
        if self._outliers and self._outliers[0] * surprise < 0.0:
            self._outliers.clear()
        self._outliers.append(surprise)
        size.num_outliers += 1
        if len(self._outliers) == _NUM_IN_A_ROW:
            self.pace *= exp(sum(self._outliers) / _NUM_IN_A_ROW)
            self._outliers.clear()
            size.num_outliers = 0
        elif size.num_outliers == _NUM_IN_A_ROW:
            size.begin(surprise)

    def _doubt_few(self) -> None:
        """Lower the weight of sizes with few passes, because the machine may have been slow in
        them."""
        for size in self._sizes.values():
            if size.weight <= _NUM_TRUSTED:
                size.weight = min(size.weight, _DOUBTED)

    def at(self, sequences: int, rows: int) -> float:
        """Return the seconds of a pass, from passes of its size or else from the line."""
        key = sequences, rows
        if key not in self._computed:
            self._computed[key] = self._expected(sequences, rows)
        return self._computed[key]

    def _expected(self, sequences: int, rows: int) -> float:
        line = self._line_at_rest
        expected = self.pace * line.at(sequences, rows)
        seen = self._sizes.get(_size_class(sequences, rows))
        if seen is None or not seen.weight:
            return expected
        ratio = seen.seconds / line.at(seen.sequences, seen.rows)
        return expected * (seen.weight * ratio + _LINE_WEIGHT) / (seen.weight + _LINE_WEIGHT)

    @property
    def line(self) -> CostLine:
        """The line at the recent pace."""
        return self._line_at_rest.times(self.pace)

    @property
    def _line_at_rest(self) -> CostLine:
        if self._line is None:
            self._line = self._draw()
        return self._line

    def _draw(self) -> CostLine:
        points = [
            # Noise grows with the time.
            Point((s.rows, s.sequences), s.seconds, s.weight / s.seconds**2)
            for s in self._sizes.values()
            if s.weight
        ]
        base_s, (row_s, sequence_s) = fit_line(points, first_share=self.slope_share)
        return CostLine(base_s, row_s, sequence_s)


@lru_cache(maxsize=4096)
def last_of_class(count: int, per_octave: int) -> int:
    """Return the largest size of the class that `count` belongs to.

    There are `per_octave` classes between a power of two and the next. A size below twice this
    number has a class of its own.
    """
    step = max(1 << (count.bit_length() - 1), per_octave) // per_octave
    return -(-count // step) * step


def alike(count: int) -> int:
    """Return the largest size of the class that `count` belongs to."""
    return last_of_class(count, _FINE)


def _size_class(sequences: int, rows: int) -> tuple[int, int]:
    return alike(sequences), alike(rows)
