"""Waiting sequences: the client that was served least since it began to wait is next.

Service is counted in tokens: prompt tokens when a request is admitted, answer tokens as they are
chosen. A client that begins to wait starts at the level of those that already wait
(docs/decisions/0014). Each client offers its sequence with the best rank first. The rate of
admissions gives refused requests a hint when to retry.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter

from specdec_core.scheduler.sequence import Rank, Sequence

QueueKey = tuple[int, Rank, str]
"""(served tokens of a client, rank of its first request, client name). The lowest is next."""

_GOES_ON = -1
"""Stands for the served tokens in a key if the first request was preempted or resumed. Such a
request comes before new ones, whatever its client was served."""
_SPARE = 64
"""Number of accounts or keys that may be kept although they are no longer needed."""

RETRY_AFTER_S = 1.0
"""Minimum hint, and the hint before anything is measured."""
LONGEST_RETRY_S = 60.0
_REMEMBERED = 128
"""Admitted requests after which half of them are forgotten."""

_rank_of: Callable[[Sequence], Rank] = attrgetter("rank")


@dataclass(eq=False, slots=True)
class ClientQueue:
    """Account of one client: its served tokens and its requests."""

    num_served: int
    """Tokens served to the client, plus those it left to others while it had no use for them."""
    num_running: int = 0
    """Requests that were admitted and have not ended."""
    waiting: list[Sequence] = field(default_factory=list)
    """Waiting requests in order of rank."""
    key: QueueKey | None = None
    """The client's valid entry in the heap. Its served tokens may have grown since."""


class WaitingQueue:
    """Waiting sequences, those of clients in the order that the clients' accounts give.

    Background sequences come last. A sorted list of ten thousand pointers costs less to change than
    a heap with holes.
    """

    def __init__(self) -> None:
        self.num_admitted = 0
        """Number of clients' requests that were admitted for the first time."""
        self.num_waiting_clients = 0
        self.sequences: list[Sequence] = []
        """Waiting sequences in order of rank."""
        self.num_clients = 0
        """Number of sequences that a client waits for. They precede every background sequence."""
        self._accounts: dict[str, ClientQueue] = {}
        """Accounts of clients with live requests, and of those that had more than waiting ones."""
        self._num_busy = 0
        """Accounts that are not idle."""
        self._most_accounts = _SPARE
        """Number of accounts above which those that are no longer needed are removed."""
        self._keys: list[QueueKey] = []
        """A heap. Entries that no account has any more are dropped when they reach the top."""
        self._level = 0
        """Served tokens of the last client that was next. A client that begins to wait starts
        with at least this number."""

    @property
    def num_client_tokens(self) -> int:
        """Number of positions that the clients' sequences need to be admitted."""
        return sum(len(sequence.ids) for sequence in self.sequences[: self.num_clients])

    @property
    def first(self) -> Sequence:
        while self._keys:
            key = self._keys[0]
            account = self._accounts.get(key[2])
            if account is None or account.key is not key:
                heappop(self._keys)
            elif key[0] in (_GOES_ON, account.num_served):
                return account.waiting[0]
            else:  # the account has grown since, so others may have less now
                self._renew_key(account)
        return self.sequences[0]

    def has_more_than_its_share(self, client: str, max_waiting: int) -> bool:
        """Return whether more of the client's requests wait than its equal share of `max_waiting`.

        All clients that wait share that number.
        """
        account = self._accounts.get(client)
        num_waiting = 0 if account is None else len(account.waiting)
        return num_waiting > _share(max_waiting, self.num_waiting_clients)

    def push(self, sequence: Sequence) -> None:
        insort(self.sequences, sequence, key=_rank_of)
        if sequence.is_background:
            return
        self.num_clients += 1
        account = self._accounts.get(sequence.request.client)
        if account is None:
            account = self._accounts[sequence.request.client] = ClientQueue(self._level)
        self._num_busy += not (account.waiting or account.num_running)
        if not account.waiting:
            account.num_served = max(account.num_served, self._level)
            self.num_waiting_clients += 1
        insort(account.waiting, sequence, key=_rank_of)
        sequence.account = account
        if account.waiting[0] is sequence:
            self._renew_key(account)

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence if it is there."""
        index = bisect_left(self.sequences, sequence.rank, key=_rank_of)
        if self.sequences[index : index + 1] != [sequence]:
            return
        del self.sequences[index]
        if sequence.is_background:
            return
        self.num_clients -= 1
        account = self._accounts[sequence.request.client]
        index = bisect_left(account.waiting, sequence.rank, key=_rank_of)
        del account.waiting[index]
        self.num_waiting_clients -= not account.waiting
        if index == 0:
            self._renew_key(account)
        self._close_idle(sequence.request.client, account)

    def admit(self, sequence: Sequence) -> None:
        """Remove the first sequence, which is being admitted. Its client is charged the first time.

        From now on it has the best rank of those that it overtook, or they would preempt it.
        """
        best_rank, _ = self.sequences[0].rank
        if not sequence.is_background and sequence.admitted_at is None:
            account = self._accounts[sequence.request.client]
            if not _goes_on(sequence):
                self._level = max(self._level, account.num_served)
            account.num_running += 1
            account.num_served += len(sequence.ids)
            self.num_admitted += 1
        self.discard(sequence)
        sequence.rank = best_rank, sequence.sequence_id

    def end(self, sequence: Sequence) -> None:
        """Remove a sequence that has ended, whether it waits or runs."""
        self.discard(sequence)
        if not sequence.is_background and sequence.admitted_at is not None:
            account = self._accounts[sequence.request.client]
            account.num_running -= 1
            self._close_idle(sequence.request.client, account)

    def _renew_key(self, account: ClientQueue) -> None:
        """Renew the account's key after its first request or its served tokens have changed."""
        account.key = None
        if not account.waiting:
            return
        first = account.waiting[0]
        num_served = _GOES_ON if _goes_on(first) else account.num_served
        account.key = num_served, first.rank, first.request.client
        heappush(self._keys, account.key)
        if len(self._keys) > 2 * self.num_waiting_clients + _SPARE:
            self._drop_old_keys()

    def _drop_old_keys(self) -> None:
        """Remove the keys that no account has any more."""
        keys = (account.key for account in self._accounts.values())
        self._keys = [key for key in keys if key is not None]
        heapify(self._keys)

    def _close_idle(self, client: str, account: ClientQueue) -> None:
        """Forget a client that would start as a new one does, or all once no client is busy."""
        if account.waiting or account.num_running:
            return
        self._num_busy -= 1
        if self._num_busy:
            self._close_unneeded(client, account)
        else:
            self._accounts.clear()
            self._keys.clear()

    def _close_unneeded(self, client: str, account: ClientQueue) -> None:
        """Forget an idle client unless its account is still needed. Once accounts are many, forget
        all that are not."""
        if not self._is_needed(account):
            del self._accounts[client]
        if len(self._accounts) > self._most_accounts:
            accounts = self._accounts.items()
            self._accounts = {name: one for name, one in accounts if self._is_needed(one)}
            self._most_accounts = 2 * len(self._accounts) + _SPARE

    def _is_needed(self, account: ClientQueue) -> bool:
        """Return whether the account must be kept.

        While others wait, a client that had more than they did must not return as a new one.
        """
        has_had_more = account.num_served > self._level and self.num_waiting_clients > 0
        return has_had_more or account.num_running > 0 or len(account.waiting) > 0


def _goes_on(sequence: Sequence) -> bool:
    """Return whether the sequence was preempted, or began under an earlier scheduler."""
    return sequence.admitted_at is not None or len(sequence.request.emitted_token_ids) > 0


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
        """Note how many requests were admitted now, and start over if no others wait."""
        if is_waiting:
            self._note_waiting(num_admitted, now)
        else:
            self._since, self._num_left, self._num_refused = None, 0.0, 0

    def _note_waiting(self, num_admitted: int, now: float) -> None:
        if self._since is None:  # requests that did not wait say nothing about those that do
            self._since = now
        elif num_admitted:
            self._num_left += num_admitted
            self._num_refused = max(self._num_refused - num_admitted, 0)
            if self._num_left > _REMEMBERED:
                self._num_left /= 2
                self._since = (self._since + now) / 2

    def refused(self, now: float) -> float:
        """Count one more refused request and return its retry hint in seconds."""
        self._num_refused += 1
        if self._since is None or not self._num_left:
            return RETRY_AFTER_S
        per_request_s = (now - self._since) / self._num_left
        wait_s = self._num_refused * per_request_s
        return round(min(max(wait_s, RETRY_AFTER_S), LONGEST_RETRY_S), 1)


def most_waiting(first_share: int, num_clients: int) -> int:
    """Return how many requests may wait at a time.

    The first client may have `first_share` of them, the second half as many more, and so on.
    """
    return sum(_share(first_share, number) for number in range(1, num_clients + 1))


def _share(total: int, num_clients: int) -> int:
    """Return an equal share, rounded up so that a client that has nothing has room for one."""
    return -(-total // max(num_clients, 1))
