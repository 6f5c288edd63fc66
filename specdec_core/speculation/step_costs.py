"""Seconds of a pass by its sequences and rows, learnt from the passes that were run.

A line gives the seconds of sizes that no pass had yet. Where passes were seen, their seconds
correct it: kernels have steps, which the line does not follow.

A machine is slower at times, for passes of all sizes, while those of one size are run. So costs are
kept beside each other, at one pace, and the pace of late apart from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log
from statistics import median

from specdec_core.speculation.linear_fit import Point, fit_line
from specdec_core.speculation.size_classes import last_of_class

_FINE = 4
"""Classes of sizes per octave. Sizes below 8 have a class each. With 8 classes it took longer to
find the best size: passes of each of them must be seen."""
_MEMORY = 50.0
"""Passes of one size that its mean remembers."""
_PACE_SHARE = 0.1
"""Of what surprises in a pass of a well-known size, that is taken for the machine's pace."""
_LINE_WEIGHT = 2.0
"""Passes that the line counts as beside those that were seen of a size."""
_OUTLIER = log(1.5)
"""A pass that is farther (as a logarithm) from those of its size met other work, or they did."""
_NUM_IN_A_ROW = 3
"""Such passes, all slower or all faster, that are the machine's new pace."""
_NUM_TRUSTED = 4
"""Passes that are taken for what a size costs: few may all have met other work."""
_DOUBTED = 0.5
"""Passes that fewer count as once they are in doubt."""
_TIMED_WEIGHT = 5.0
"""Passes that a size counts as which was timed before any was run here."""
_NUM_FIRST = 4
"""Passes that say, the median of them, how much longer they take than those that were timed: the
host's part, longer prefixes, a busy machine."""
_SETTLED = 16.0
"""Passes of a size from which on one more moves the line so little that it is not drawn anew."""
_DRAW_EVERY = 8
"""Passes after which it is all the same: to draw it takes 0.1 ms, for which a target would wait."""


@dataclass(eq=False, slots=True)
class _Size:
    """Passes of about one size: means of what was seen."""

    weight: float = 0.0
    seconds: float = 0.0
    """At the pace of 1."""
    sequences: float = 0.0
    rows: float = 0.0
    num_outliers: int = 0
    """Of its last passes."""

    def learn(self, surprise: float) -> None:
        self.weight = min(self.weight + 1.0, _MEMORY)
        self.seconds *= exp(surprise / self.weight)

    def begin(self, surprise: float) -> None:
        """Go by this pass alone."""
        self.seconds, self.weight, self.num_outliers = self.seconds * exp(surprise), 1.0, 0

    def note(self, sequences: int, rows: int) -> None:
        """One pass more; its seconds are noted apart."""
        share = 1.0 / max(self.weight, 1.0)
        self.sequences += (sequences - self.sequences) * share
        self.rows += (rows - self.rows) * share


@dataclass(frozen=True, slots=True)
class CostLine:
    """Seconds = base + the sum over rows and sequences."""

    base_s: float
    row_s: float
    sequence_s: float

    def at(self, sequences: float, rows: float) -> float:
        return self.base_s + self.row_s * rows + self.sequence_s * sequences

    def times(self, pace: float) -> CostLine:
        return CostLine(pace * self.base_s, pace * self.row_s, pace * self.sequence_s)


@dataclass(eq=False, slots=True)
class CostModel:
    """Seconds of a pass of so many rows of so many sequences.

    The mean of a size is forgotten only by newer passes of that size. So the line keeps its slope
    while all passes have one size, which alone would say nothing of it. What all passes of late
    have in common is the machine's pace.
    """

    slope_share: float = 0.5
    """Of a pass, that is taken to grow with its rows until passes of other sizes were seen."""
    num_seen: int = 0
    """Passes."""
    pace: float = 1.0
    """Seconds of passes of late over those that are kept."""
    was_timed: bool = False
    """Several sizes were, before passes were run here."""
    _sizes: dict[tuple[int, int], _Size] = field(default_factory=dict)
    _line: CostLine | None = None
    """At the pace of 1. None: to be drawn again."""
    _outliers: list[float] = field(default_factory=list)
    """Of the last passes one after another, all on one side."""
    _first: list[float] = field(default_factory=list)
    """Surprises of the first passes, where some were timed."""
    _asked: dict[tuple[int, int], float] = field(default_factory=dict)
    """What `at` has answered since the last pass: plans ask for the same sizes again and again."""

    @property
    def is_known(self) -> bool:
        return len(self._sizes) > 0

    def expect(self, sequences: int, rows: int, seconds: float) -> None:
        """What a pass took when it was timed; what was run, or expected before, counts more."""
        key = _size_class(sequences, rows)
        if self.num_seen or key in self._sizes:
            return
        self._asked.clear()
        self.was_timed = len(self._sizes) > 0
        size = self._sizes[key] = _Size(weight=_TIMED_WEIGHT, seconds=seconds)
        size.sequences, size.rows = sequences, rows
        self._line = None

    def observe(self, sequences: int, rows: int, seconds: float) -> None:
        if seconds <= 0.0:
            return  # a driver's clock may stand still
        self._learn(sequences, rows, seconds)
        self._asked.clear()

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
        if size.weight < _SETTLED or self.num_seen % _DRAW_EVERY == 0:
            self._line = None

    def _compare(self, size: _Size, surprise: float) -> None:
        """What a pass of a size that was seen before says of it, and of the pace."""
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
        """One is other work. Several are the machine; among good passes of others, the size."""
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
        """Whoever was seen in few passes may have been seen while the machine was slow."""
        for size in self._sizes.values():
            if size.weight <= _NUM_TRUSTED:
                size.weight = min(size.weight, _DOUBTED)

    def at(self, sequences: int, rows: int) -> float:
        """Seconds of a pass: what those of its size took, or what the line says."""
        asked = sequences, rows
        if asked not in self._asked:
            self._asked[asked] = self._expected(sequences, rows)
        return self._asked[asked]

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
        """At the pace of late."""
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


def alike(count: int) -> int:
    """Return the largest size of the class that `count` belongs to."""
    return last_of_class(count, _FINE)


def _size_class(sequences: int, rows: int) -> tuple[int, int]:
    return alike(sequences), alike(rows)
