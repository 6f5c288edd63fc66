"""The pure scheduling core: sequences, groups and leases. No torch, no clock, no I/O."""

from specdec_core.scheduler.commands import Command, Drained, SendFree, SendLease, SendReset
from specdec_core.scheduler.scheduler import Scheduler
from specdec_core.scheduler.sequence import SequenceStatus
from specdec_core.scheduler.stats import ReplicaCounters, SchedulerCounters
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.k_policy import DraftLengthReason, KPolicy
from specdec_core.speculation.policies import FixedPolicy

__all__ = [
    "AcceptanceHistory",
    "Command",
    "DraftLengthReason",
    "Drained",
    "FixedPolicy",
    "KPolicy",
    "ReplicaCounters",
    "Scheduler",
    "SchedulerCounters",
    "SendFree",
    "SendLease",
    "SendReset",
    "SequenceStatus",
]
