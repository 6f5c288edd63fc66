"""How long to wait before trying a peer again: 50 ms doubling to 1 s, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable

_FIRST_S = 0.05
_LONGEST_S = 1.0


class Backoff:
    """Waits between attempts. Jitter keeps a hundred replicas from returning in one instant."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._wait_s = _FIRST_S
        self._uniform = uniform

    def next_wait_s(self) -> float:
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, _LONGEST_S)
        return wait_s * self._uniform(0.5, 1.0)

    def succeeded(self) -> None:
        self._wait_s = _FIRST_S
