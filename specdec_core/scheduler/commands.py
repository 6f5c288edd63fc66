"""What the pool asks its driver to do. A driver carries them out in order, per replica at least."""

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
    """Let the replica forget sequences. It travels behind every lease sent before."""

    replica_id: str
    sequence_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendReset:
    """Let the replica forget everything and acknowledge: `Scheduler.on_reset_done`."""

    replica_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing is leased to the draining replica and no sequence is placed there: it may stop."""

    replica_id: str


@dataclass(slots=True)
class Emit:
    """Tell the client of `event.request_id`. Not frozen: one is made per sequence and round, in
    0.1 us instead of 0.2."""

    event: TokenEvent


Command = SendLease | SendFree | SendReset | Drained | Emit
