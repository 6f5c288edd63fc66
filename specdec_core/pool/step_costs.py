"""What a pass costs by its sequences, rows and tiles, learnt from the passes that were run.

A line says what was not seen yet; where passes were seen, what they took corrects it. The line
alone would not do: rows that fill a tile up cost next to nothing, the first one of the next tile a
quarter of a pass, and kernels have more such steps, which nobody tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from specdec_core.pool.linear_fit import Point, fit_line

_FINE = 4
"""Steps to an octave in which sizes are told apart; those below 8 one by one. With 8 steps it took
longer to find the best size: each of them must be seen."""
_MEMORY = 20.0
"""Passes of one size that its mean remembers."""
_LINE_WEIGHT = 2.0
"""Passes that the line counts as beside those that were seen of a size."""
_SLOPE_SHARE = 0.5
"""Share of a pass that is taken to grow with its rows until passes of other sizes were seen."""
_OUTLIER = 1.5
"""A pass that took longer than so many times what was expected met other work: it counts as long as
that. An expectation so many times as long as a pass was made by such."""
_NUM_TRUSTED = 4


@dataclass(eq=False, slots=True)
class _Size:
    """Passes of about one size: means of what was seen."""

    weight: float = 0.0
    seconds: float = 0.0
    sequences: float = 0.0
    rows: float = 0.0
    tiles: float = 0.0
    last_seen: int = 0
    """Number of the pass."""

    def note(self, sequences: int, rows: int, tiles: int, seconds: float) -> None:
        if self.weight:
            self.seconds = min(self.seconds, _OUTLIER * seconds)
        self.weight = min(self.weight + 1.0, _MEMORY)
        self.seconds += (seconds - self.seconds) / self.weight
        self.sequences += (sequences - self.sequences) / self.weight
        self.rows += (rows - self.rows) / self.weight
        self.tiles += (tiles - self.tiles) / self.weight


@dataclass(frozen=True, slots=True)
class CostLine:
    """Seconds = base + the sum over rows, sequences and tiles."""

    base_s: float
    row_s: float
    sequence_s: float
    tile_s: float

    def at(self, sequences: float, rows: float, tiles: float) -> float:
        return self.base_s + self.row_s * rows + self.sequence_s * sequences + self.tile_s * tiles


@dataclass(eq=False, slots=True)
class StepCost:
    """Seconds of a pass of so many rows of so many sequences.

    The mean of a size is forgotten only by newer passes of that size. So the line keeps its slope
    while all passes have one size, which alone would say nothing of it.
    """

    tile_rows: int = 0
    """Rows that one call of the narrowest linear takes; 0 where any number is one call."""
    num_seen: int = 0
    """Passes."""
    _sizes: dict[tuple[int, int], _Size] = field(default_factory=dict)
    _line: CostLine | None = None
    """None: to be drawn again."""

    @property
    def is_known(self) -> bool:
        return self.num_seen > 0

    def observe(self, sequences: int, rows: int, seconds: float) -> None:
        if self.num_seen >= _NUM_TRUSTED:
            seconds = min(seconds, _OUTLIER * self.at(sequences, rows))
        self.num_seen += 1
        size = self._sizes.setdefault(self._key(sequences, rows), _Size())
        size.note(sequences, rows, self._tiles(rows), seconds)
        size.last_seen = self.num_seen
        self._line = None

    def at(self, sequences: int, rows: int) -> float:
        """Seconds of a pass: what those of its size took, or what the line says."""
        line = self.line
        expected = line.at(sequences, rows, self._tiles(rows))
        seen = self._sizes.get(self._key(sequences, rows))
        if seen is None:
            return expected
        ratio = seen.seconds / line.at(seen.sequences, seen.rows, seen.tiles)
        return expected * (seen.weight * ratio + _LINE_WEIGHT) / (seen.weight + _LINE_WEIGHT)

    def last_seen(self, sequences: int, rows: int) -> int:
        """Number of the last pass of about this size; 0 if there was none."""
        seen = self._sizes.get(self._key(sequences, rows))
        return seen.last_seen if seen is not None else 0

    def last_alike(self, rows: int) -> int:
        """The most rows that count as the same size as `rows`."""
        end = alike(rows)
        return min(end, self._tiles(rows) * self.tile_rows) if self.tile_rows else end

    @property
    def line(self) -> CostLine:
        if self._line is None:
            self._line = self._draw()
        return self._line

    def _key(self, sequences: int, rows: int) -> tuple[int, int]:
        return alike(sequences), self.last_alike(rows)

    def _tiles(self, rows: int) -> int:
        return -(-rows // self.tile_rows) if self.tile_rows else 0

    def _draw(self) -> CostLine:
        points = [
            # Noise grows with the time.
            Point((s.rows, s.sequences, s.tiles), s.seconds, s.weight / s.seconds**2)
            for s in self._sizes.values()
        ]
        base_s, (row_s, sequence_s, tile_s) = fit_line(points, first_share=_SLOPE_SHARE)
        return CostLine(base_s, row_s, sequence_s, tile_s)


@lru_cache(maxsize=4096)
def alike(count: int) -> int:
    """`count` raised to a step of the octave; small counts stay as they are."""
    step = max(1 << (count.bit_length() - 1), _FINE) // _FINE
    return -(-count // step) * step
