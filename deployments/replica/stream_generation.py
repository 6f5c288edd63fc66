"""Decides which leases are void after a reset or the loss of a stream. Pure.

Leases are void if the replica read them before that.
"""

from __future__ import annotations


class StreamGeneration:
    """The current generation of a stream. `end` makes everything void that was read before.

    A thread may call `is_void`.
    """

    def __init__(self) -> None:
        self.now = 0
        """Generation of whatever is read now."""

    def end(self) -> None:
        self.now += 1

    def is_void(self, life: int) -> bool:
        """Return whether what was read in generation `life` is no longer awaited."""
        return life != self.now
