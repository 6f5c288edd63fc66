"""The waiting sequences, by rank: first come first served within a priority, with ageing."""

from __future__ import annotations

from bisect import bisect_left, insort

from specdec_core.pool.sequence import BACKGROUND_RANK, Sequence


def _rank(sequence: Sequence) -> tuple[float, int]:
    return sequence.rank


class WaitingQueue:
    """A sorted list: moving ten thousand pointers costs less than keeping a heap with holes."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def num_clients(self) -> int:
        """Those that a client waits for: they are ahead of every background sequence."""
        return bisect_left(self._sequences, (BACKGROUND_RANK, -1), key=_rank)

    @property
    def first(self) -> Sequence:
        return self._sequences[0]

    def push(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=_rank)

    def discard(self, sequence: Sequence) -> None:
        """Take a sequence out, if it is there."""
        place = bisect_left(self._sequences, sequence.rank, key=_rank)
        if self._sequences[place : place + 1] == [sequence]:
            del self._sequences[place]
