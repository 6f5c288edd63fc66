"""Durations of passes on an accelerator, as tables or lines, and accelerators that are shared."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from specdec_core.errors import InvalidRequestError
from specdec_core.messages import GroupLease, Role

_LINE = re.compile(r"(\d+(?:\.\d+)?)\+(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class StepTable:
    """Seconds by number of rows. Values are interpolated linearly between points, and extrapolated
    beyond the last."""

    points: tuple[tuple[int, float], ...]

    def at(self, rows: float) -> float:
        index = bisect_left(self.points, (rows, 0.0))
        if index == 0 or len(self.points) == 1:
            return self.points[0][1]
        index = min(index, len(self.points) - 1)
        (low, low_s), (high, high_s) = self.points[index - 1], self.points[index]
        return low_s + (high_s - low_s) * (rows - low) / (high - low)


def parse_step_ms(text: str) -> StepTable:
    """Parse step times. `1:20,8:27,32:38` are rows and milliseconds; `20+0.6` is a base and the
    time per row."""
    line = _LINE.fullmatch(text.strip())
    if line is not None:
        base, per_row = float(line[1]) / 1e3, float(line[2]) / 1e3
        return StepTable(((0, base), (1000, base + 1000 * per_row)))
    try:
        pairs = [part.split(":") for part in text.split(",")]
        points = tuple(sorted((int(rows), float(ms) / 1e3) for rows, ms in pairs))
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is neither rows:ms,rows:ms,... nor base+ms_per_row"
        ) from error
    if len({rows for rows, _ in points}) < len(points) or any(s <= 0 for _, s in points):
        raise InvalidRequestError(
            f"{text!r}: each number of rows may appear once, and each time must be above 0"
        )
    return StepTable(points)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Costs of both models. `verify` goes by input tokens, `draft` is one step and goes by
    sequences."""

    verify: StepTable
    draft: StepTable

    def seconds(self, lease: GroupLease) -> float:
        """Return the duration of a lease. A draft's first step takes the tokens that it lacks, the
        others one token per sequence."""
        num_fed = sum(len(row.new_ids) + len(row.proposal) for row in lease.rows)
        if lease.role is Role.TARGET:
            return self.verify.at(num_fed)
        num_steps = max(row.num_choices for row in lease.rows)
        return self.draft.at(num_fed) + max(num_steps - 1, 0) * self.draft.at(len(lease.rows))


class Accelerator:
    """One device. A pass that comes while it is busy waits."""

    def __init__(self, name: str = "") -> None:
        """`name` is the device name that its replicas report. A shared device must have one."""
        self.name = name
        self._free_at = 0.0

    def take(self, now: float, seconds: float) -> float:
        """Return the time at which a pass that is requested now ends."""
        self._free_at = max(self._free_at, now) + seconds
        return self._free_at
