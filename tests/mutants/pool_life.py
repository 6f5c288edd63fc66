"""Defects of the pool's life: results, leases, fencing, draining, attempts."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="epoch-not-compared",
        path="specdec_core/scheduler/scheduler.py",
        old="if replica is None or not is_known or result.epoch != self._epoch:",
        new="if replica is None or not is_known:",
        breaks="a result for the coordinator before the restart is committed",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_result_that_is_wrong_in_any_way_is_dropped_and_counted",
        ),
    ),
    Mutant(
        name="lease-not-compared",
        path="specdec_core/scheduler/scheduler.py",
        old="open_ = replica.leases.pop(result.lease_id)",
        new="open_ = replica.leases[result.lease_id]",
        breaks="a result that arrives twice is committed twice",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_result_that_is_wrong_in_any_way_is_dropped_and_counted",
        ),
    ),
    Mutant(
        name="drained-while-leased",
        path="specdec_core/scheduler/scheduler.py",
        old="        if not replica.leases:\n            self._outbox.drained",
        new="        if True:\n            self._outbox.drained",
        breaks="a replica is stopped while it still runs a group",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_draining_replica_that_falls_silent_is_drained_too",
        ),
    ),
    Mutant(
        name="leased-sequence-drained",
        path="specdec_core/scheduler/scheduler.py",
        old="            if sequence.places[replica.role].row is None:\n"
        "                self._placement.leave(sequence, replica.role)",
        new="            self._placement.leave(sequence, replica.role)",
        breaks="draining throws the answer of the running group away",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_draining_draft_gives_its_proposal_and_then_its_sequences",
        ),
    ),
    Mutant(
        name="reset-of-a-dead-incarnation",
        path="specdec_core/scheduler/scheduler.py",
        old="if replica is not None and replica.info.incarnation == incarnation:",
        new="if replica is not None:",
        breaks="the acknowledgement of a dead process unfences its successor",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_silent_replica_is_fenced_as_a_whole_until_it_has_forgotten_everything",
        ),
    ),
    Mutant(
        name="stale-stream-deregisters",
        path="specdec_core/scheduler/scheduler.py",
        old="if replica is None or incarnation not in (None, replica.info.incarnation):",
        new="if replica is None:",
        breaks="the closing stream of a dead process removes its successor",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_new_incarnation_replaces_the_older_one_without_a_deregistration",
        ),
    ),
    Mutant(
        name="sequences-die-with-their-replica",
        path="specdec_core/scheduler/scheduler.py",
        old="        self._placement.evacuate(replica)\n        self._fleet.remove(replica_id)",
        new="        self._fleet.remove(replica_id)",
        breaks="requests on a dead target never continue",
        killed_by=(
            "tests/pool/test_replicas.py::test_sequences_of_a_dead_target_are_replayed_on_another",
        ),
    ),
    Mutant(
        name="older-attempt-still-heard",
        path="specdec_core/scheduler/scheduler.py",
        old="self._outbox.forget_events(request.request_id)",
        new="len(self._registry)",
        breaks="a request that is sent again hears events of its first attempt",
        killed_by=(
            "tests/pool/test_life.py::test_what_the_older_attempt_had_still_to_say_is_not_told_to_the_new_one",
        ),
    ),
    Mutant(
        name="waiting-behind-another-lease-counts",
        path="specdec_core/scheduler/scheduler.py",
        old="            behind.deadline = now + behind.lease.ttl_s",
        new="            assert behind.lease.replica_id",
        breaks="a target that is merely slow is fenced again and again",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_target_whose_passes_take_most_of_a_leases_time_is_not_fenced",
        ),
    ),
    Mutant(
        name="later-leases-never-looked-at",
        path="specdec_core/scheduler/scheduler.py",
        old="min([now + self._config.lease_ttl_s, *self._deadlines()])",
        new="now + self._config.lease_ttl_s",
        breaks="a replica that falls silent is noticed up to twice as late",
        killed_by=("tests/pool/test_upkeep.py::test_each_lease_expires_at_its_own_deadline",),
    ),
    Mutant(
        name="slot-freed-before-the-lease-answers",
        path="specdec_core/scheduler/commands.py",
        old="        self._flush(lease.replica_id)\n",
        new="",
        breaks="a replica is sent more rows than its blocks hold: the frees come too late",
        killed_by=(
            "tests/pool/test_blocks.py::test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens",
        ),
    ),
    Mutant(
        name="event-index-behind-its-tokens",
        path="specdec_core/scheduler/live_requests.py",
        old="TokenEvent(sequence.request_id, sequence.num_emitted, tokens)",
        new="TokenEvent(sequence.request_id, sequence.num_emitted + len(tokens), tokens)",
        breaks="a client that resumes by index loses or repeats tokens",
        killed_by=(
            "tests/pool/test_life.py::test_a_resumed_request_continues_its_indexes_and_its_budget",
        ),
    ),
)
