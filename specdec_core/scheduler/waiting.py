"""The waiting sequences: clients in turn by fair shares, of one client those of the best rank."""

from __future__ import annotations

from bisect import bisect_left, insort

from specdec_core.scheduler.fair_queue import FairQueue, rank_of
from specdec_core.scheduler.sequence import BACKGROUND_RANK, Sequence


def most_waiting(num_places: int, num_clients: int) -> int:
    """Requests that may wait at once: one client has all places, the next half as many more."""
    return sum(_share(num_places, place) for place in range(1, num_clients + 1))


class WaitingQueue:
    """A sorted list: moving ten thousand pointers costs less than keeping a heap with holes."""

    def __init__(self) -> None:
        self.num_admitted = 0
        """Of clients, for the first time."""
        self._sequences: list[Sequence] = []
        """By rank."""
        self._shares = FairQueue()

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def num_clients(self) -> int:
        """Those that a client waits for: they are ahead of every background sequence."""
        return bisect_left(self._sequences, (BACKGROUND_RANK, -1), key=rank_of)

    @property
    def num_client_tokens(self) -> int:
        """Positions that they need to be admitted."""
        return sum(len(sequence.ids) for sequence in self._sequences[: self.num_clients])

    @property
    def has_clients(self) -> bool:
        return self._shares.num_waiting_clients > 0

    @property
    def first(self) -> Sequence:
        return self._shares.first or self._sequences[0]

    def has_more_than_its_share(self, client: str, num_places: int) -> bool:
        """Whether more of the client's wait than `num_places` shared equally by all that wait."""
        share = _share(num_places, self._shares.num_waiting_clients)
        return self._shares.num_waiting(client) > share

    def push(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=rank_of)
        if not sequence.is_background:
            self._shares.push(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Take a sequence out, if it is there."""
        place = bisect_left(self._sequences, sequence.rank, key=rank_of)
        if self._sequences[place : place + 1] == [sequence]:
            del self._sequences[place]
            if not sequence.is_background:
                self._shares.discard(sequence)

    def admit(self, sequence: Sequence) -> None:
        """Take the first one out. It ranks with the best that it overtook from now on: those are
        not to push it out again when they are admitted."""
        best_rank, _ = self._sequences[0].rank
        if not sequence.is_background and sequence.admitted_at is None:
            self._shares.begin(sequence)
            self.num_admitted += 1
        self.discard(sequence)
        sequence.rank = best_rank, sequence.sequence_id

    def end(self, sequence: Sequence) -> None:
        """The sequence has ended, and waits no longer."""
        if not sequence.is_background and sequence.admitted_at is not None:
            self._shares.end(sequence)


def _share(num_places: int, num_clients: int) -> int:
    """Rounded up: whoever has nothing has room for one."""
    return -(-num_places // max(num_clients, 1))
