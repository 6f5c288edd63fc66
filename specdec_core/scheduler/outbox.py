"""Commands of one `advance`, in order, with one Free per replica for all sequences that leave."""

from __future__ import annotations

from specdec_core.messages import GroupLease
from specdec_core.request import TokenEvent
from specdec_core.scheduler.commands import Command, Drained, Emit, SendFree, SendLease, SendReset


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
