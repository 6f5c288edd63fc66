"""Outboxes: the messages that wait for one stream, bounded, and merged while its reader is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from deployments.errors import Failure
from deployments.wire.request_codec import write_event
from specdec.v1 import coordination_pb2 as pb
from specdec_core.request import FinishReason, TokenEvent
from specdec_core.scheduler import Drained, SendFree, SendLease, SendReset

WorkCommand = SendLease | SendFree | SendReset | Drained

MAX_WAITING_LEASES = 2


_Unread = tuple[TokenEvent, Failure | None]
"""An event of one request, and the failure that it is, if it is one."""


class _Outbox:
    """A flag for unread items, and the end of the stream. One reader."""

    def __init__(self) -> None:
        self.is_closed = False
        self._is_ready = asyncio.Event()
        self.has_items: Callable[[], bool] = self._is_ready.is_set
        """Returns True if `take` would return without waiting."""
        self.beat: Callable[[], None] = self._is_ready.set
        """Lets `take` return, even if there is nothing to send."""

    def close(self) -> None:
        """End the stream after its reader has read everything that was put."""
        self.is_closed = True
        self._is_ready.set()


class IngressOutbox(_Outbox):
    """Messages for one ingress; bounded by the tokens of its live requests.

    A request's first and last events are read immediately. Those between may wait `hold_s` for
    others, and are then read with those of all waiting requests. Each event that is read is an
    output chunk. It costs its ingress and its proxy as much as a round's tokens would.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hold_s = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """Timer that fires when the first held event has waited for `hold_s`."""
        self.num_live = 0
        """Load in the last state that was put."""
        self._message = pb.GenerateDown()
        """The next message, without its events."""
        self._due: dict[str, list[_Unread]] = {}
        """Events to be read now, by request."""
        self._held: dict[str, list[_Unread]] = {}
        """Events that wait for others, by request. A request is in `_due` or in `_held`, never in
        both."""

    def put(self, event: TokenEvent, failure: Failure | None = None) -> None:
        """Add an event, merged into an unread event of the same request if possible."""
        request_id = event.request_id
        can_wait = event.index > 0 and event.finish_reason is None
        if self.hold_s and can_wait and request_id not in self._due:
            unread = self._hold(request_id)
        else:
            unread = self._due.setdefault(request_id, self._held.pop(request_id, []))
            self._is_ready.set()
        if unread and (merged := _merged(unread[-1][0], event)) is not None:
            unread[-1] = (merged, failure)
        else:
            unread.append((event, failure))

    def _hold(self, request_id: str) -> list[_Unread]:
        """Return the list of events of a request that wait for others. It is read in `hold_s` at
        the latest."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self.hold_s, self._ring)
        return self._held.setdefault(request_id, [])

    def fail(self, request_id: str, failure: Failure) -> TokenEvent:
        """Add the last event of a request that failed outside the scheduler, and return it. Its
        index is unknown there."""
        event = TokenEvent(
            request_id=request_id,
            index=0,
            token_ids=(),
            finish_reason=FinishReason.ERROR,
            error=failure.message,
        )
        self.put(event, failure)
        return event

    def put_state(self, state: pb.PoolState) -> None:
        self._message.state.CopyFrom(state)
        self.num_live = state.num_live
        self._is_ready.set()

    def put_abort(self, request_id: str, was_live: bool) -> None:
        self._message.aborts.add(request_id=request_id, aborted=was_live)
        self._is_ready.set()

    def put_accepted(self, request_id: str) -> None:
        self._message.accepted.append(request_id)
        self._is_ready.set()

    def _ring(self) -> None:
        self._alarm = None
        if self._held:  # empty if a last event took the held ones along
            self._release()
            self._is_ready.set()

    def _release(self) -> None:
        self._due |= self._held
        self._held.clear()

    async def take(self) -> pb.GenerateDown | None:
        """Wait for items and return a message with all that are due; None at the end of the
        stream. A beat is an empty message."""
        await self._is_ready.wait()
        if self.is_closed:
            self._release()
        else:
            self._is_ready.clear()
        message, self._message = self._message, pb.GenerateDown()
        due, self._due = self._due, {}
        for unread in due.values():
            for event, failure in unread:
                write_event(message.events.add(), event, failure)
        is_end = self.is_closed and not message.ByteSize()
        return None if is_end else message


def _merged(ours: TokenEvent, theirs: TokenEvent) -> TokenEvent | None:
    """Return one event instead of two; None if they do not join."""
    if ours.finish_reason is not None or ours.index + len(ours.token_ids) != theirs.index:
        return None
    return theirs._replace(
        index=ours.index,
        token_ids=ours.token_ids + theirs.token_ids,
        logprobs=ours.logprobs + theirs.logprobs,
        prompt_logprobs=ours.prompt_logprobs + theirs.prompt_logprobs,
        pinned_fingerprint=ours.pinned_fingerprint,
    )


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
        if self.is_closed:
            return None
        self._is_ready.clear()
        commands, self._commands = self._commands, []
        self._num_waiting_leases = 0
        return commands
