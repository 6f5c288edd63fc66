"""Outboxes: the messages that wait for one stream, bounded, and merged while its reader is slow."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """State of the cell that ingresses need."""

    epoch: int
    num_targets: int
    num_drafts: int
    num_live: int
    """Client requests that have not ended."""
    max_model_len: int
    """Minimum of the targets' limits; 0 without targets."""
    model_digest: str
    fingerprint: str
    numerics: Numerics


class Delivery(NamedTuple):
    """An event of one request."""

    event: TokenEvent
    failure: Failure | None = None

    @classmethod
    def failed(cls, request_id: str, failure: Failure) -> Delivery:
        """Return the last event of a request that failed outside the scheduler. Its index is
        unknown there."""
        event = TokenEvent(
            request_id=request_id,
            index=0,
            token_ids=(),
            finish_reason=FinishReason.ERROR,
            error=failure.message,
        )
        return cls(event, failure)


class Flush(NamedTuple):
    """Everything that an ingress has not been sent yet."""

    deliveries: tuple[Delivery, ...] = ()
    state: PoolState | None = None
    aborts: tuple[tuple[str, bool], ...] = ()
    accepted: tuple[str, ...] = ()
    """IDs of requests that were queued."""


class _Outbox:
    """A flag for unread items, and the end of the stream. One reader."""

    def __init__(self) -> None:
        self._is_ready = asyncio.Event()
        self._is_closed = False
        self.has_items: Callable[[], bool] = self._is_ready.is_set
        """Returns True if `take` would return without waiting."""

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """End the stream after its reader has read everything that was put."""
        self._is_closed = True
        self._is_ready.set()

    def beat(self) -> None:
        """Let `take` return, even if there is nothing to send."""
        self._is_ready.set()

    def _read(self) -> None:
        """Clear the flag, because everything is read now."""
        if not self._is_closed:
            self._is_ready.clear()


class IngressOutbox(_Outbox):
    """Events for one ingress; bounded by the tokens of its live requests.

    A request's first and last events are read immediately. Those between may wait `hold_s` for
    others, and are then read with those of all waiting requests. Each event that is read is an
    output chunk. It costs its ingress and its proxy as much as a round's tokens would.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hold_s = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """Timer that fires when the first held event has waited for `hold_s`."""
        self._due: dict[str, list[Delivery]] = {}
        """Events to be read now, by request."""
        self._held: dict[str, list[Delivery]] = {}
        """Events that wait for others, by request. A request is in `_due` or in `_held`, never in
        both."""
        self._state: PoolState | None = None
        self._aborts: list[tuple[str, bool]] = []
        self._accepted: list[str] = []

    def put(self, delivery: Delivery) -> None:
        """Add an event, merged into an unread event of the same request if possible."""
        request_id = delivery.event.request_id
        if self.hold_s and _can_wait(delivery.event) and request_id not in self._due:
            _add(self._held.setdefault(request_id, []), delivery)
            self._set_alarm()
        else:
            earlier = self._held.pop(request_id, [])
            _add(self._due.setdefault(request_id, earlier), delivery)
            self._is_ready.set()

    def put_state(self, state: PoolState) -> None:
        self._state = state
        self._is_ready.set()

    def put_abort(self, request_id: str, was_live: bool) -> None:
        self._aborts.append((request_id, was_live))
        self._is_ready.set()

    def put_accepted(self, request_id: str) -> None:
        self._accepted.append(request_id)
        self._is_ready.set()

    def _set_alarm(self) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self.hold_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._held:  # empty if a last event took the held ones along
            self._release()
            self._is_ready.set()

    def _release(self) -> None:
        self._due |= self._held
        self._held.clear()

    async def take(self) -> Flush | None:
        """Wait for items and take all that are due; None at the end of the stream."""
        await self._is_ready.wait()
        return self.take_items()

    def take_items(self) -> Flush | None:
        """Do as `take`, when there is something to take."""
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
    """Add an event to the unread ones of the same request."""
    merged = _merge(unread[-1], delivery) if unread else None
    if merged is None:
        unread.append(delivery)
    else:
        unread[-1] = merged


def _can_wait(event: TokenEvent) -> bool:
    return event.index > 0 and event.finish_reason is None


def _merge(first: Delivery, second: Delivery) -> Delivery | None:
    """Return one delivery instead of two; None if they do not join."""
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
    """Commands for one replica, in order. The scheduler leases at most a few batches ahead."""

    def __init__(self) -> None:
        super().__init__()
        self._commands: list[WorkCommand] = []
        self._num_waiting_leases = 0

    def put(self, command: WorkCommand) -> None:
        """Add a command. Closes the stream of a replica that does not read its leases."""
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
        self._is_ready.set()

    async def take(self) -> list[WorkCommand] | None:
        """Wait for commands and take all of them; None at the end of the stream."""
        await self._is_ready.wait()
        return self.take_items()

    def take_items(self) -> list[WorkCommand] | None:
        """Do as `take`, when there is something to take."""
        self._read()
        if self._is_closed:
            return None
        commands, self._commands = self._commands, []
        self._num_waiting_leases = 0
        return commands
