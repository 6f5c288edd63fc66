"""(c), (d), (f): content and size of each slot of a replica, at every lease that it runs."""

from __future__ import annotations

from collections.abc import Iterable

from deployments.simulation.invariants.kv_owners import KVOwners
from deployments.simulation.model_replica import LeaseKey, ModelReplica, Slot, key_of
from deployments.simulation.record import Violation
from deployments.simulation.tokens import Script, salt_of
from specdec_core.messages import OK, TARGET, GroupLease, GroupResult, LeaseRow, hashes_behind


class SlotChecks:
    """Checks the slots of the replicas."""

    def __init__(self, kv_owners: KVOwners) -> None:
        self._kv_owners = kv_owners
        self._void: set[LeaseKey] = set()

    def voided(self, leases: Iterable[LeaseKey]) -> None:
        self._void.update(leases)

    def executed(self, runner: ModelReplica, lease: GroupLease, result: GroupResult) -> None:
        if self._void and key_of(lease) in self._void:
            raise Violation(f"(b) {lease.replica_id} runs lease {lease.lease_id}, which is void")
        for row, answer in zip(lease.rows, result.rows, strict=True):
            if answer.status is OK:
                self._check_slot(runner, lease, row, answer.tokens)
        self.counted(runner)

    def counted(self, runner: ModelReplica) -> None:
        """(f) The blocks of its slots and its free blocks add up to its capacity."""
        blocks_for = runner.info.kv_cache_spec.blocks_for
        num_used = sum([blocks_for(len(slot.hashes) - 1) for slot in runner.slots.values()])
        free = runner.num_free_blocks
        if free < 0 or num_used + free != runner.info.num_blocks:
            raise Violation(f"(f) {runner.info.replica_id}: {num_used} used and {free} free blocks")

    def _check_slot(
        self, runner: ModelReplica, lease: GroupLease, row: LeaseRow, tokens: tuple[int, ...]
    ) -> None:
        """Check that each position derives from the IDs before it. A draft's own guesses come after
        them."""
        slot = runner.slots[row.sequence_id]
        first, end_len = row.base_len, row.end_len
        request = self._kv_owners.request(lease.epoch, row.sequence_id)
        if slot.seed != request.params.seed:
            raise Violation(f"(c) {request.request_id} reads the slot of the request {slot.seed}")
        if lease.role is TARGET:
            known_len = len(slot.hashes) - 1
            if slot.salt != salt_of(slot.seed, runner.info.fingerprint):
                raise Violation(f"(c) {request.request_id}: the slot is tainted by other bits")
        else:
            known_len = end_len
            guesses = slot.hashes[known_len + 1 :]
            if guesses and guesses != hashes_behind(slot.hashes[known_len], tokens[:-1]):
                raise Violation(f"(c) {request.request_id}: the draft caches what it did not say")
        if first >= end_len:
            raise Violation(f"(d) {request.request_id}: {first} ids are cached of {end_len}")
        for script in self._kv_owners.scripts(request):
            if _is_prefix(slot, script, first, known_len):
                return
        raise Violation(f"(c) {request.request_id}: KV of {first} to {known_len} is of others")


def _is_prefix(slot: Slot, script: Script, first: int, known_len: int) -> bool:
    """Return True if the slot's hashes match the script from `first` on. A hash covers all IDs
    before it, so that is enough. After a stop a target may have continued."""
    script_part = script.hashes[first : known_len + 1]
    return bool(script_part) and slot.hashes[first : first + len(script_part)] == script_part
