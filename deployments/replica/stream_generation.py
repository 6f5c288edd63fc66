"""Which of the leases that a replica has read are void: those that it read before it was reset, or
before it lost its stream. Pure."""

from __future__ import annotations


class StreamGeneration:
    """Each end makes everything void that was read before. A thread may ask."""

    def __init__(self) -> None:
        self.now = 0
        """What is read now belongs to this life."""

    def end(self) -> None:
        self.now += 1

    def is_void(self, life: int) -> bool:
        """Whether nobody waits any more for what was read in `life`."""
        return life != self.now
