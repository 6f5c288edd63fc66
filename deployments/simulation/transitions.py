"""Every change of a sequence's state that can be seen between two decisions of the pool."""

from __future__ import annotations

from specdec_core.scheduler.sequence import SequenceStatus

NEW = "new"
"""State of a sequence before the first decision that it is part of."""

_AFTER: dict[str, str] = {
    NEW: "waiting ready proposed catching_up verifying",
    SequenceStatus.WAITING: "ready proposed catching_up verifying finished",
    SequenceStatus.READY: "waiting proposed catching_up drafting verifying finished",
    SequenceStatus.DRAFTING: "waiting ready proposed catching_up verifying finished",
    SequenceStatus.PROPOSED: "waiting catching_up verifying finished",
    SequenceStatus.CATCHING_UP: "waiting ready proposed drafting verifying finished",
    SequenceStatus.VERIFYING: "waiting ready proposed catching_up drafting finished",
}

TRANSITIONS = frozenset(
    (before, after) for before, text in _AFTER.items() for after in text.split()
)
