"""Retry hint for refused requests, from the rate at which waiting requests are admitted."""

from __future__ import annotations

RETRY_AFTER_S = 1.0
"""Minimum hint, and the hint before anything is measured."""
LONGEST_RETRY_S = 60.0
_REMEMBERED = 128
"""Admitted requests after which half of them are forgotten."""


class RetryHint:
    """Computes when a refused request would have its turn if all refused requests came back."""

    def __init__(self) -> None:
        self._since: float | None = None
        """Time at which requests began to wait; None while none waits."""
        self._num_left = 0.0
        """Requests admitted since then."""
        self._num_refused = 0
        """Requests refused since then, less one for each that was admitted later."""

    def note(self, num_admitted: int, is_waiting: bool, now: float) -> None:
        """Note how many requests were admitted now, and whether others still wait."""
        if not is_waiting:
            self.forget()
        elif self._since is None:  # requests that did not wait say nothing about those that do
            self._since = now
        elif num_admitted:
            self._num_left += num_admitted
            self._num_refused = max(self._num_refused - num_admitted, 0)
            if self._num_left > _REMEMBERED:
                self._num_left /= 2
                self._since = (self._since + now) / 2

    def forget(self) -> None:
        """Start over, because no request waits any more."""
        if self._since is not None:
            self._since, self._num_left, self._num_refused = None, 0.0, 0

    def refused(self, now: float) -> float:
        """Count one more refused request and return its retry hint in seconds."""
        self._num_refused += 1
        if self._since is None or not self._num_left:
            return RETRY_AFTER_S
        per_request_s = (now - self._since) / self._num_left
        wait_s = self._num_refused * per_request_s
        return round(min(max(wait_s, RETRY_AFTER_S), LONGEST_RETRY_S), 1)
