"""How long an ingress lets token events wait for later ones of their request.

Whatever a round has brought goes out at once, unless the ingress takes more of the machine than its
share: then the news of several rounds come as one, and make one chunk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MOST_HELD_S = 0.05
"""A reader sees no difference; below it 20 chunks a second leave for each stream."""
SHARE_PER_CORE = 0.025
"""Of the machine's cores: what an ingress costs, its proxy costs about once more."""
MOST_SHARE = 0.5
"""An ingress has one loop: from half a core on, what it does waits for itself."""
LOOK_S = 0.25
_LEAST_HELD_S = 0.002
"""Rounds that follow each other sooner than this cannot be told apart."""


def share_of(num_cores: int) -> float:
    """Cores that one ingress may take before it holds anything."""
    return min(SHARE_PER_CORE * num_cores, MOST_SHARE)


class ChunkPacing:
    """One per ingress. Looks at the process now and then, while there is news."""

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
        """Seconds that news may wait; 0: it goes at once."""
        since_s = self._clock() - self._looked_s
        if since_s >= LOOK_S:
            spent_s = self._cpu_clock()
            self._adapt((spent_s - self._spent_s) / since_s)
            self._looked_s, self._spent_s = self._looked_s + since_s, spent_s
        return self._hold_s

    def _adapt(self, num_cores: float) -> None:
        """As much longer as it took more than its share, as much shorter as it took less."""
        wanted_s = max(self._hold_s, _LEAST_HELD_S) * num_cores / self._share
        self._hold_s = min(wanted_s, MOST_HELD_S) if wanted_s > _LEAST_HELD_S else 0.0
