"""Commands of the scheduler to its driver, which executes them in order, at least per replica.

An outbox collects the commands of one `advance`, with one Free per replica for all sequences that
leave.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_core.messages import GroupLease
from specdec_core.request import TokenEvent


@dataclass(frozen=True, slots=True)
class SendLease:
    """Let `lease.replica_id` run a group."""

    lease: GroupLease


@dataclass(frozen=True, slots=True)
class SendFree:
    """Let the replica forget sequences. The command arrives after every lease sent before."""

    replica_id: str
    sequence_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendReset:
    """Let the replica forget everything and acknowledge it (`Scheduler.on_reset_done`)."""

    replica_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing is leased to the draining replica and no sequence is placed there: it may stop."""

    replica_id: str


@dataclass(slots=True)
class Emit:
    """Send an event to the client of `event.request_id`.

    The class is not frozen, because one is made per sequence and round. That takes 0.1 us instead
    of 0.2.
    """

    event: TokenEvent


Command = SendLease | SendFree | SendReset | Drained | Emit


class Outbox:
    """Queue of commands. Frees are sent together, before the replica's next lease or at the end."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._frees: dict[str, list[int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._commands and not self._frees

    def emit(self, event: TokenEvent) -> None:
        self._commands.append(Emit(event))

    def free(self, replica_id: str, sequence_id: int) -> None:
        self._frees.setdefault(replica_id, []).append(sequence_id)

    def lease(self, lease: GroupLease) -> None:
        self._flush(lease.replica_id)
        self._commands.append(SendLease(lease))

    def reset(self, replica_id: str, incarnation: int) -> None:
        self.forget_frees(replica_id)
        self._commands.append(SendReset(replica_id, incarnation))

    def drained(self, replica_id: str) -> None:
        self._flush(replica_id)
        self._commands.append(Drained(replica_id))

    def forget_events(self, request_id: str) -> None:
        """Drop the events of an older attempt, because a new attempt of the request begins."""
        self._commands = [
            command
            for command in self._commands
            if not isinstance(command, Emit) or command.event.request_id != request_id
        ]

    def forget_frees(self, replica_id: str) -> None:
        """Drop the gathered Frees of a replica that forgets everything anyway."""
        self._frees.pop(replica_id, None)

    def take(self) -> list[Command]:
        for replica_id in list(self._frees):
            self._flush(replica_id)
        commands, self._commands = self._commands, []
        return commands

    def _flush(self, replica_id: str) -> None:
        sequence_ids = self._frees.pop(replica_id, None)
        if sequence_ids:
            self._commands.append(SendFree(replica_id, tuple(sequence_ids)))
