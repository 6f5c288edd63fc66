"""What waits to be written to one stream: bounded, and merged while its reader is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from deployments.errors import Failure
from specdec_core.config import Numerics
from specdec_core.request import FinishReason, TokenEvent
from specdec_core.scheduler import Drained, SendFree, SendLease, SendReset

WorkCommand = SendLease | SendFree | SendReset | Drained

MAX_WAITING_LEASES = 2


def addressee(command: WorkCommand) -> str:
    """The replica that it is for."""
    return command.lease.replica_id if isinstance(command, SendLease) else command.replica_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """What an ingress needs to know of the pool."""

    epoch: int
    num_targets: int
    num_drafts: int
    num_live: int
    """Requests of clients that have not ended."""
    max_model_len: int
    """The smallest of the targets' limits; 0 without targets."""
    model_digest: str
    fingerprint: str
    numerics: Numerics


class Delivery(NamedTuple):
    """One request's news."""

    event: TokenEvent
    failure: Failure | None = None

    @classmethod
    def failed(cls, request_id: str, failure: Failure) -> Delivery:
        """The last news of a request that failed outside the pool: its index is not known there."""
        event = TokenEvent(
            request_id=request_id,
            index=0,
            token_ids=(),
            finish_reason=FinishReason.ERROR,
            error=failure.message,
        )
        return cls(event, failure)


class Flush(NamedTuple):
    """Everything an ingress has not been told yet."""

    deliveries: tuple[Delivery, ...] = ()
    state: PoolState | None = None
    aborts: tuple[tuple[str, bool], ...] = ()
    accepted: tuple[str, ...] = ()
    """Requests that were queued."""


class _Outbox:
    """A flag for news, and the end of the stream. One reader."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._is_closed = False
        self.has_news: Callable[[], bool] = self._news.is_set
        """Whether `take` would answer at once."""

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """What was put is still read; then the stream ends."""
        self._is_closed = True
        self._news.set()

    def beat(self) -> None:
        """Let `take` answer, if only to say that nothing has happened."""
        self._news.set()

    def _read(self) -> None:
        """There is news, and it is read now."""
        if not self._is_closed:
            self._news.clear()


class IngressOutbox(_Outbox):
    """News for one ingress; bounded by the tokens of its live requests.

    A request's first and last news are read at once. Those between may wait `hold_s` for others,
    and are read with those of all requests that wait: each of them is a chunk that costs its
    ingress and its proxy as much as a round's worth of tokens would.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hold_s = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """Rings when the first news that waits has waited long enough."""
        self._due: dict[str, list[Delivery]] = {}
        """By request."""
        self._held: dict[str, list[Delivery]] = {}
        """The same; a request is in one of them."""
        self._state: PoolState | None = None
        self._aborts: list[tuple[str, bool]] = []
        self._accepted: list[str] = []

    def put(self, delivery: Delivery) -> None:
        """Add news, merged into unread news of the same request."""
        request_id = delivery.event.request_id
        if self.hold_s and _can_wait(delivery.event) and request_id not in self._due:
            _add(self._held.setdefault(request_id, []), delivery)
            self._set_alarm()
        else:
            earlier = self._held.pop(request_id, [])
            _add(self._due.setdefault(request_id, earlier), delivery)
            self._news.set()

    def put_state(self, state: PoolState) -> None:
        self._state = state
        self._news.set()

    def put_abort(self, request_id: str, was_live: bool) -> None:
        self._aborts.append((request_id, was_live))
        self._news.set()

    def put_accepted(self, request_id: str) -> None:
        self._accepted.append(request_id)
        self._news.set()

    def _set_alarm(self) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self.hold_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._held:  # the last news of a request takes along what waited of it
            self._release()
            self._news.set()

    def _release(self) -> None:
        self._due |= self._held
        self._held.clear()

    async def take(self) -> Flush | None:
        """Wait for news and take all that is due; None at the end of the stream."""
        await self._news.wait()
        return self.take_news()

    def take_news(self) -> Flush | None:
        """As `take`, where there is news."""
        self._read()
        if self._is_closed:
            self._release()
        if not (self._due or self._state or self._aborts or self._accepted):
            return None if self._is_closed else Flush()
        deliveries = tuple(chain.from_iterable(self._due.values()))
        flush = Flush(deliveries, self._state, tuple(self._aborts), tuple(self._accepted))
        self._due, self._state, self._aborts, self._accepted = {}, None, [], []
        return flush


def _add(unread: list[Delivery], delivery: Delivery) -> None:
    """Of one request."""
    merged = _merge(unread[-1], delivery) if unread else None
    if merged is None:
        unread.append(delivery)
    else:
        unread[-1] = merged


def _can_wait(event: TokenEvent) -> bool:
    return event.index > 0 and event.finish_reason is None


def _merge(first: Delivery, second: Delivery) -> Delivery | None:
    """One delivery instead of two; None where they do not join."""
    ours, theirs = first.event, second.event
    if ours.finish_reason is not None or ours.index + len(ours.token_ids) != theirs.index:
        return None
    event = theirs._replace(
        index=ours.index,
        token_ids=ours.token_ids + theirs.token_ids,
        logprobs=ours.logprobs + theirs.logprobs,
        prompt_logprobs=ours.prompt_logprobs + theirs.prompt_logprobs,
        pinned_fingerprint=ours.pinned_fingerprint,
    )
    return Delivery(event, second.failure)


class WorkOutbox(_Outbox):
    """Commands for one replica, in order. The pool leases at most a few groups ahead."""

    def __init__(self) -> None:
        super().__init__()
        self._commands: list[WorkCommand] = []
        self._num_waiting_leases = 0

    def put(self, command: WorkCommand) -> None:
        """Add a command; closes the stream of a replica that does not read its leases."""
        if isinstance(command, SendLease):
            if self._num_waiting_leases == MAX_WAITING_LEASES:
                self.close()
                return
            self._num_waiting_leases += 1
        last = self._commands[-1] if self._commands else None
        if isinstance(command, SendFree) and isinstance(last, SendFree):
            ids = (*last.sequence_ids, *command.sequence_ids)
            self._commands[-1] = replace(last, sequence_ids=ids)
        else:
            self._commands.append(command)
        self._news.set()

    async def take(self) -> list[WorkCommand] | None:
        """Wait for commands and take all of them; None at the end of the stream."""
        await self._news.wait()
        return self.take_news()

    def take_news(self) -> list[WorkCommand] | None:
        """As `take`, where there is news."""
        self._read()
        if self._is_closed:
            return None
        commands, self._commands = self._commands, []
        self._num_waiting_leases = 0
        return commands
