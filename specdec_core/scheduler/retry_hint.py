"""When one who is refused should come back: by how fast the waiting requests are admitted."""

from __future__ import annotations

RETRY_AFTER_S = 1.0
"""Before anything is known, and at least."""
LONGEST_RETRY_S = 60.0
_REMEMBERED = 128
"""Requests that left after which half is forgotten."""


class RetryHint:
    """Whoever is refused is told when it would be its turn, were all of them to come back."""

    def __init__(self) -> None:
        self._since: float | None = None
        """When requests began to wait; None while nobody does."""
        self._num_left = 0.0
        """Admitted since."""
        self._num_refused = 0
        """Refused since, less one for each that was admitted later."""

    def note(self, num_admitted: int, is_waiting: bool, now: float) -> None:
        """So many were admitted now, and whether others still wait."""
        if not is_waiting:
            self.forget()
        elif self._since is None:  # those that found room at once say nothing of those that wait
            self._since = now
        elif num_admitted:
            self._num_left += num_admitted
            self._num_refused = max(self._num_refused - num_admitted, 0)
            if self._num_left > _REMEMBERED:
                self._num_left /= 2
                self._since = (self._since + now) / 2

    def forget(self) -> None:
        """Nobody waits any more."""
        if self._since is not None:
            self._since, self._num_left, self._num_refused = None, 0.0, 0

    def refused(self, now: float) -> float:
        """Seconds, for one more that is refused."""
        self._num_refused += 1
        if self._since is None or not self._num_left:
            return RETRY_AFTER_S
        per_request_s = (now - self._since) / self._num_left
        wait_s = self._num_refused * per_request_s
        return round(min(max(wait_s, RETRY_AFTER_S), LONGEST_RETRY_S), 1)
