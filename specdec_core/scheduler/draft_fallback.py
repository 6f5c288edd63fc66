"""Selects rows that go to their target without a proposal, because the draft has no time."""

from __future__ import annotations

from specdec_core.messages import Role
from specdec_core.scheduler.proposals import Proposer
from specdec_core.scheduler.replicas import ReplicaSet, ReplicaState
from specdec_core.scheduler.sequence import Sequence


class DraftFallback:
    """Fills the groups of targets while rows queue for a draft that is always busy."""

    def __init__(self, fleet: ReplicaSet, proposer: Proposer) -> None:
        self._fleet = fleet
        self._proposer = proposer

    def fill(self, target: ReplicaState) -> bool:
        """Fill the target's next group, if each draft keeps a full group, too.

        Return whether the group was filled.
        """
        num_missing = target.board.max_group_size - target.board.num_clients
        may_fill = 0 < num_missing <= len(target.board.undrafted)
        if not may_fill or not self._proposer.is_draft_short:
            return False
        chosen = self._longest_waiting(target, num_missing)
        if len(chosen) < num_missing:
            return False
        for sequence in chosen:
            self._proposer.go_without(sequence)
            target.touch(sequence)
        return True

    def _longest_waiting(self, target: ReplicaState, count: int) -> list[Sequence]:
        """Return up to `count` sequences that wait for a draft, without the draft's next group."""
        left = {
            draft.replica_id: len(draft.board.clients) - draft.board.max_group_size
            for draft in self._fleet.of_role(Role.DRAFT)
        }
        chosen: list[Sequence] = []
        for sequence in target.board.undrafted.values():
            if len(chosen) == count:
                break
            assert sequence.draft is not None, "it waits for one"
            draft_id = sequence.draft.replica_id
            if left[draft_id] > 0:
                left[draft_id] -= 1
                chosen.append(sequence)
        return chosen
