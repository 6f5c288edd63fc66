"""Queue of waiting sequences: clients take turns by fair shares, each with its best rank first."""

from __future__ import annotations

from bisect import bisect_left, insort

from specdec_core.scheduler.fair_queue import FairQueue, rank_of
from specdec_core.scheduler.sequence import BACKGROUND_RANK, Sequence


def most_waiting(num_places: int, num_clients: int) -> int:
    """Return how many requests may wait at a time.

    The first client may have `num_places` of them, the second half as many more, and so on.
    """
    return sum(_share(num_places, place) for place in range(1, num_clients + 1))


class WaitingQueue:
    """Sorted list of sequences. Moving ten thousand pointers costs less than a heap with holes."""

    def __init__(self) -> None:
        self.num_admitted = 0
        """Number of clients' requests that were admitted for the first time."""
        self._sequences: list[Sequence] = []
        """Waiting sequences in order of rank."""
        self._shares = FairQueue()

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def num_clients(self) -> int:
        """Number of sequences that a client waits for. They precede every background sequence."""
        return bisect_left(self._sequences, (BACKGROUND_RANK, -1), key=rank_of)

    @property
    def num_client_tokens(self) -> int:
        """Number of positions that the clients' sequences need to be admitted."""
        return sum(len(sequence.ids) for sequence in self._sequences[: self.num_clients])

    @property
    def has_clients(self) -> bool:
        return self._shares.num_waiting_clients > 0

    @property
    def first(self) -> Sequence:
        return self._shares.first or self._sequences[0]

    def has_more_than_its_share(self, client: str, num_places: int) -> bool:
        """Return whether the client has more waiting requests than its equal share of `num_places`.

        All clients that wait share the places.
        """
        share = _share(num_places, self._shares.num_waiting_clients)
        return self._shares.num_waiting(client) > share

    def push(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=rank_of)
        if not sequence.is_background:
            self._shares.push(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence if it is there."""
        place = bisect_left(self._sequences, sequence.rank, key=rank_of)
        if self._sequences[place : place + 1] == [sequence]:
            del self._sequences[place]
            if not sequence.is_background:
                self._shares.discard(sequence)

    def admit(self, sequence: Sequence) -> None:
        """Remove the first sequence, which is being admitted.

        From now on it has the best rank of those that it overtook. Otherwise they would preempt it
        when they are admitted.
        """
        best_rank, _ = self._sequences[0].rank
        if not sequence.is_background and sequence.admitted_at is None:
            self._shares.begin(sequence)
            self.num_admitted += 1
        self.discard(sequence)
        sequence.rank = best_rank, sequence.sequence_id

    def end(self, sequence: Sequence) -> None:
        """Note a sequence that has ended and waits no longer."""
        if not sequence.is_background and sequence.admitted_at is not None:
            self._shares.end(sequence)


def _share(num_places: int, num_clients: int) -> int:
    """Return an equal share, rounded up so that a client that has nothing has room for one."""
    return -(-num_places // max(num_clients, 1))
