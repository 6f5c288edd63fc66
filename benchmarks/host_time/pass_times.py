"""Seconds that passes take on a device, by their rows and tokens a row, from measured points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Times of passes between and beyond measured points, linear in rows and in tokens a row."""

    points: Mapping[tuple[int, int], float]
    """(rows, tokens of each row) -> seconds of the pass. A full grid; empty takes no time."""
    factor: float = 1.0
    """Ratio of the times used to the times in `points`, above 0."""

    def __call__(self, rows: int, tokens: float) -> float:
        """Return the seconds of a pass of `rows` rows with `tokens` tokens each, at least 0."""
        if not self.points:
            return 0.0
        grid_rows = sorted({row for row, _ in self.points})
        grid_tokens = sorted({token for _, token in self.points})
        by_row = [
            _between(grid_tokens, [self.points[row, token] for token in grid_tokens], tokens)
            for row in grid_rows
        ]
        return max(_between(grid_rows, by_row, rows), 0.0) * self.factor

    def scaled(self, factor: float) -> PassTimes:
        """Return the same passes on a device that takes `factor` times as long."""
        return replace(self, factor=self.factor * factor)


def _between(places: Sequence[int], values: Sequence[float], place: float) -> float:
    """Interpolate; beyond the last place, continue the last slope."""
    if len(places) == 1:
        return values[0]
    right = min(max(bisect_right(places, place), 1), len(places) - 1)
    left = right - 1
    share = (place - places[left]) / (places[right] - places[left])
    return values[left] + share * (values[right] - values[left])


NO_TIME = PassTimes({})
"""Passes that take no time: the host alone sets the pace."""

H100_TARGET = PassTimes(
    {
        (1, 1): 6.69e-3,
        (1, 5): 6.70e-3,
        (8, 1): 7.00e-3,
        (8, 5): 7.13e-3,
        (32, 1): 7.67e-3,
        (32, 5): 8.53e-3,
        (128, 1): 11.53e-3,
        (128, 5): 20.00e-3,
    }
)
"""Qwen3-8B, bfloat16, 512 cached tokens: `roofline.json` of benchmarks/results/gpu_h100."""
H100_DRAFT_STEP = PassTimes({(1, 1): 1.59e-3, (8, 1): 1.72e-3, (32, 1): 2.32e-3, (128, 1): 4.86e-3})
"""One step of Qwen3-0.6B, 512 cached tokens: a quarter of the four steps in the same file."""
