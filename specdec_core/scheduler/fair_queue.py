"""Which client is served next: the one that was served least since it began to wait.

Served is counted in tokens: of the prompt when a request is admitted, of the answer as they are
chosen. Whoever begins to wait starts where those stand that wait already (docs/decisions/0014).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter

from specdec_core.scheduler.sequence import Rank, Sequence

Turn = tuple[int, Rank, str]
"""What a client has had, the rank of its first request, its name: the least is next."""

_GOES_ON = -1
"""In a turn: what the client has had does not count."""
_SPARE = 64
"""So many accounts and turns that are not needed any more may be left."""


rank_of: Callable[[Sequence], Rank] = attrgetter("rank")


@dataclass(eq=False, slots=True)
class ClientQueue:
    """One client's."""

    num_served: int
    """Tokens, and those that it left to others while it had no use for them."""
    num_running: int = 0
    """Requests that were admitted and have not ended."""
    waiting: list[Sequence] = field(default_factory=list)
    """By rank."""
    turn: Turn | None = None
    """Its entry among the turns that is valid; what it has had may have grown since."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.num_running


class FairQueue:
    """The accounts, and the waiting sequences of clients in the order that these give them."""

    def __init__(self) -> None:
        self.num_waiting_clients = 0
        self._accounts: dict[str, ClientQueue] = {}
        """Of clients with live requests, and of those that had more than others who waited."""
        self._num_busy = 0
        """Accounts that are not idle."""
        self._most_accounts = _SPARE
        """Beyond it those that are not needed any more are looked for."""
        self._turns: list[Turn] = []
        """A heap; entries that no account has any more are dropped when they come up."""
        self._level = 0
        """What the client had whose turn it was last; whoever begins to wait has had that much."""

    @property
    def first(self) -> Sequence | None:
        while self._turns:
            turn = self._turns[0]
            account = self._accounts.get(turn[2])
            if account is None or account.turn is not turn:
                heappop(self._turns)
            elif turn[0] in (_GOES_ON, account.num_served):
                return account.waiting[0]
            else:  # others may have had less meanwhile
                self._take_turn(account)
        return None

    def num_waiting(self, client: str) -> int:
        account = self._accounts.get(client)
        return 0 if account is None else len(account.waiting)

    def push(self, sequence: Sequence) -> None:
        client = sequence.request.client
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = ClientQueue(self._level)
        self._num_busy += account.is_idle
        if not account.waiting:
            account.num_served = max(account.num_served, self._level)
            self.num_waiting_clients += 1
        insort(account.waiting, sequence, key=rank_of)
        sequence.account = account
        if account.waiting[0] is sequence:
            self._take_turn(account)

    def discard(self, sequence: Sequence) -> None:
        """The sequence, which waits, does so no longer."""
        account = self._accounts[sequence.request.client]
        place = bisect_left(account.waiting, sequence.rank, key=rank_of)
        del account.waiting[place]
        self.num_waiting_clients -= not account.waiting
        if place == 0:
            self._take_turn(account)
        self._close_idle(sequence.request.client, account)

    def begin(self, sequence: Sequence) -> None:
        """The first one, which waits still, is admitted for the first time."""
        account = self._accounts[sequence.request.client]
        if not _goes_on(sequence):
            self._level = max(self._level, account.num_served)
        account.num_running += 1
        account.num_served += len(sequence.ids)

    def end(self, sequence: Sequence) -> None:
        """The sequence, which was admitted and does not wait, has ended."""
        account = self._accounts[sequence.request.client]
        account.num_running -= 1
        self._close_idle(sequence.request.client, account)

    def _take_turn(self, account: ClientQueue) -> None:
        """The account's first request, or what it has had, is another one."""
        account.turn = None
        if not account.waiting:
            return
        first = account.waiting[0]
        num_served = _GOES_ON if _goes_on(first) else account.num_served
        account.turn = num_served, first.rank, first.request.client
        heappush(self._turns, account.turn)
        if len(self._turns) > 2 * self.num_waiting_clients + _SPARE:
            turns = (account.turn for account in self._accounts.values())
            self._turns = [turn for turn in turns if turn is not None]
            heapify(self._turns)

    def _close_idle(self, client: str, account: ClientQueue) -> None:
        """Forget a client that would start as a new one does; all, once nobody is left."""
        if not account.is_idle:
            return
        self._num_busy -= 1
        if not self._num_busy:
            self._accounts.clear()
            self._turns.clear()
        elif not self._is_needed(account):
            del self._accounts[client]
        if len(self._accounts) > self._most_accounts:
            known = self._accounts.items()
            self._accounts = {name: one for name, one in known if self._is_needed(one)}
            self._most_accounts = 2 * len(self._accounts) + _SPARE

    def _is_needed(self, account: ClientQueue) -> bool:
        """While others wait, who had more than they is not to come back at once as a new one."""
        has_had_more = account.num_served > self._level and self.num_waiting_clients > 0
        return has_had_more or not account.is_idle


def _goes_on(sequence: Sequence) -> bool:
    """It had its turn before: it was preempted, or began in another life of the pool."""
    return sequence.admitted_at is not None or len(sequence.request.emitted_token_ids) > 0
