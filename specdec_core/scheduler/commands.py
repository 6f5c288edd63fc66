"""Commands of the scheduler to its driver, which executes them in order, at least per replica."""

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


Command = SendLease | SendFree | SendReset | Drained | TokenEvent
"""A TokenEvent goes to the client of its request."""
