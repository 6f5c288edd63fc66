"""Decides how long an ingress lets token events wait for later ones of their request.

Normally the output of a round is sent immediately. If the ingress takes more than its share of the
machine, the events of several rounds are merged into one chunk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MOST_HELD_S = 0.05
"""Maximum hold time in seconds, with 20 chunks a second per stream. A reader sees no difference."""
SHARE_PER_CORE = 0.025
"""Share of the machine's cores for one ingress. Its proxy costs about the same again."""
MOST_SHARE = 0.5
"""Maximum share, in cores. An ingress has one event loop; from half a core on, its own work
waits."""
LOOK_S = 0.25
_LEAST_HELD_S = 0.002
"""Minimum hold time in seconds. Rounds that follow each other sooner cannot be distinguished."""


def share_of(num_cores: int) -> float:
    """Return the number of cores that one ingress may take before it holds events."""
    return min(SHARE_PER_CORE * num_cores, MOST_SHARE)


class ChunkPacing:
    """Paces the chunks of one ingress. It measures the process at intervals, while there are
    events."""

    def __init__(
        self,
        share: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._share = share_of(os.cpu_count() or 1) if share is None else share
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._looked_s, self._spent_s = clock(), cpu_clock()
        self._hold_s = 0.0

    def hold_s(self) -> float:
        """Return how many seconds events may wait. 0: they are sent immediately."""
        since_s = self._clock() - self._looked_s
        if since_s >= LOOK_S:
            spent_s = self._cpu_clock()
            self._adapt((spent_s - self._spent_s) / since_s)
            self._looked_s, self._spent_s = self._looked_s + since_s, spent_s
        return self._hold_s

    def _adapt(self, num_cores: float) -> None:
        """Scale the hold time by the measured use of cores over the share."""
        wanted_s = max(self._hold_s, _LEAST_HELD_S) * num_cores / self._share
        self._hold_s = min(wanted_s, MOST_HELD_S) if wanted_s > _LEAST_HELD_S else 0.0
