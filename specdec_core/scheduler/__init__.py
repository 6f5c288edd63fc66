"""The pure scheduling core: sequences, groups and leases. No torch, no clock, no I/O."""

from specdec_core.scheduler.commands import Command, Drained, Emit, SendFree, SendLease, SendReset
from specdec_core.scheduler.scheduler import SequencePool
from specdec_core.scheduler.sequence import SequenceStatus
from specdec_core.scheduler.stats import PoolCounters, ReplicaCounters
from specdec_core.speculation.k_cause import KCause
from specdec_core.speculation.k_policy import AcceptanceHistory, Drafter, FixedK, KPolicy

__all__ = [
    "AcceptanceHistory",
    "Command",
    "Drafter",
    "Drained",
    "Emit",
    "FixedK",
    "KCause",
    "KPolicy",
    "PoolCounters",
    "ReplicaCounters",
    "SendFree",
    "SendLease",
    "SendReset",
    "SequencePool",
    "SequenceStatus",
]
