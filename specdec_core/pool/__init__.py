"""The pure scheduling core: sequences, groups and leases. No torch, no clock, no I/O."""

from specdec_core.pool.commands import Command, Drained, Emit, SendFree, SendLease, SendReset
from specdec_core.pool.counters import PoolCounters, ReplicaCounters
from specdec_core.pool.k_cause import KCause
from specdec_core.pool.k_policy import AcceptanceHistory, Drafter, FixedK, KPolicy
from specdec_core.pool.pool import SequencePool
from specdec_core.pool.sequence import SequenceStatus

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
