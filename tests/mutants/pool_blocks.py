"""Defects of the pool's rooms and groups: blocks, preemption, admission, who shares a pass."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="fenced-blocks-count-as-free",
        path="specdec_core/scheduler/replicas.py",
        old="return 0 if self.is_fenced else self.info.num_blocks - self.num_reserved_blocks",
        new="return self.info.num_blocks - self.num_reserved_blocks",
        breaks="slots that a silent replica still holds are given away",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_silent_replica_is_fenced_as_a_whole_until_it_has_forgotten_everything",
        ),
    ),
    Mutant(
        name="blocks-leak-with-each-sequence",
        path="specdec_core/scheduler/replicas.py",
        old="self.num_reserved_blocks -= self.num_blocks(place.reserved_len)",
        new="self.num_reserved_blocks -= self.num_blocks(place.cached_len)",
        breaks="capacity shrinks with every request until nothing is admitted",
        killed_by=("tests/pool/test_fleet.py::test_a_sequence_that_leaves_takes_nothing_along",),
    ),
    Mutant(
        name="room-for-the-whole-output-wanted",
        path="specdec_core/scheduler/admission.py",
        old="target = self._fleet.roomiest_target(len(sequence.ids))",
        new="target = self._fleet.roomiest_target(sequence.request.max_len)",
        breaks="few requests run where many would fit: each must fit with its longest output",
        killed_by=(
            "tests/pool/test_admission.py::test_blocks_of_the_present_tokens_bound_admission_not_those_of_the_longest_output",
        ),
    ),
    Mutant(
        name="no-spare-blocks-for-the-running",
        path="specdec_core/scheduler/replicas.py",
        old="spare = len(self.sequences) // ROUNDS_PER_BLOCK",
        new="spare = 0",
        breaks="newcomers are admitted and preempted at once, again and again",
        killed_by=(
            "tests/pool/test_fleet.py::test_a_newcomer_leaves_a_block_for_every_fourth_sequence",
        ),
    ),
    Mutant(
        name="held-blocks-given-back",
        path="specdec_core/scheduler/replicas.py",
        old="length = held_len if held_len > wanted_len else wanted_len",
        new="length = wanted_len",
        breaks="blocks that the replica still holds are promised to another sequence",
        killed_by=(
            "tests/pool/test_fleet.py::test_blocks_that_the_replica_still_holds_stay_reserved",
        ),
    ),
    Mutant(
        name="last-token-needs-a-position",
        path="specdec_core/scheduler/replicas.py",
        old="replica.longest_len + 1)",
        new="replica.longest_len)",
        breaks="a request that just fits is refused",
        killed_by=("tests/pool/test_admission.py::test_capacity_counts_as_a_length_limit_too",),
    ),
    Mutant(
        name="short-requests-crowd-one-target",
        path="specdec_core/scheduler/replicas.py",
        old="key=lambda r: (len(r.sequences), -r.num_free_blocks, r.replica_id)",
        new="key=lambda r: (-r.num_free_blocks, r.replica_id)",
        breaks="targets with a row less than a full group wait for it, pass by pass",
        killed_by=(
            "tests/pool/test_admission.py::test_targets_with_room_have_as_many_sequences_each",
        ),
    ),
    Mutant(
        name="half-full-target-not-spared",
        path="specdec_core/scheduler/replicas.py",
        old="if 2 * r.num_free_blocks >= r.info.num_blocks",
        new="if r.num_free_blocks",
        breaks="a target is filled until it preempts, beside one with blocks free",
        killed_by=("tests/pool/test_admission.py::test_a_target_that_is_half_full_is_spared",),
    ),
    Mutant(
        name="draining-replica-gets-work",
        path="specdec_core/scheduler/replicas.py",
        old="return not (self.is_fenced or self.is_draining)",
        new="return not self.is_fenced",
        breaks="a replica that shall stop is given new sequences",
        killed_by=(
            "tests/pool/test_replicas.py::test_draining_moves_the_idle_sequences_at_once_and_the_leased_ones_when_they_return",
        ),
    ),
    Mutant(
        name="other-vocabulary-let-in",
        path="specdec_core/scheduler/compatibility.py",
        old="if other.vocab_size != info.vocab_size:",
        new="if other.vocab_size > info.vocab_size:",
        breaks="a draft of another tokenizer proposes ids that mean something else",
        killed_by=("tests/pool/test_replicas.py::test_replicas_that_do_not_agree_are_refused",),
    ),
    Mutant(
        name="other-model-as-second-target",
        path="specdec_core/scheduler/compatibility.py",
        old="if are_targets and other.model_digest != info.model_digest:",
        new="if False and other.model_digest != info.model_digest:",
        breaks="a request continues on a target with other weights",
        killed_by=("tests/pool/test_replicas.py::test_replicas_that_do_not_agree_are_refused",),
    ),
    Mutant(
        name="preempted-slot-never-freed",
        path="specdec_core/scheduler/admission.py",
        old="self._outbox.free(replica.replica_id, sequence.sequence_id)",
        new="replica.replica_id",
        breaks="the blocks of a preempted sequence stay taken on the replica",
        killed_by=(
            "tests/pool/test_blocks.py::test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens",
        ),
    ),
    Mutant(
        name="finished-slot-never-freed",
        path="specdec_core/scheduler/admission.py",
        old="self._outbox.free(place.replica_id, sequence.sequence_id)",
        new="place.replica_id",
        breaks="the blocks of a finished sequence stay taken on the replica",
        killed_by=(
            "tests/pool/test_life.py::test_the_free_of_an_aborted_sequence_travels_behind_its_lease",
        ),
    ),
    Mutant(
        name="youngest-preempts-the-oldest",
        path="specdec_core/scheduler/batch_builder.py",
        old="youngest = max(idle, key=lambda one: one.rank)",
        new="youngest = min(idle, key=lambda one: one.rank)",
        breaks="two sequences take each other's blocks in turn and neither goes on",
        killed_by=(
            "tests/pool/test_blocks.py::test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens",
        ),
    ),
    Mutant(
        name="leased-sequence-preempted",
        path="specdec_core/scheduler/batch_builder.py",
        old="idle = (s for s in replica.sequences.values() if s.places[replica.role].row is None)",
        new="idle = (s for s in replica.sequences.values())",
        breaks="the blocks of a sequence are given away while a group runs it",
        killed_by=("tests/pool/test_blocks.py::test_a_sequence_that_is_leased_out_gives_no_room",),
    ),
    Mutant(
        name="room-not-reserved",
        path="specdec_core/scheduler/replicas.py",
        old="        self.num_reserved_blocks += more\n        place.reserved_len = length\n",
        new="",
        breaks="rows of one group are promised the same free blocks",
        killed_by=(
            "tests/pool/test_blocks.py::test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens",
        ),
    ),
    Mutant(
        name="sequence-leased-twice",
        path="specdec_core/scheduler/batch_builder.py",
        old="board.put_out(sequence.sequence_id, place.replica_id)\n            return\n",
        new="board.put_out(sequence.sequence_id, place.replica_id)\n",
        breaks="two groups advance one sequence at the same time",
        killed_by=(
            "tests/pool/test_background.py::test_it_never_makes_a_target_busy_while_a_client_is_being_drafted",
        ),
    ),
    Mutant(
        name="group-never-waits",
        path="specdec_core/scheduler/ready_queue.py",
        old="        return bool(self._out)\n",
        new="        return False\n",
        breaks="groups of one: members that are being drafted are never waited for",
        killed_by=(
            "tests/pool/test_grouping.py::test_a_target_waits_for_members_that_are_being_drafted_but_not_beyond_the_bound",
        ),
    ),
    Mutant(
        name="part-of-a-group-goes-behind-a-running-one",
        path="specdec_core/scheduler/batch_builder.py",
        old="        if replica.leases:\n            return False\n",
        new="",
        breaks="where passes are long, the parts of a group take turns for ever",
        killed_by=(
            "tests/pool/test_grouping.py::test_behind_a_running_group_only_a_full_one_is_sent",
        ),
    ),
    Mutant(
        name="group-waits-beyond-its-bound",
        path="specdec_core/scheduler/batch_builder.py",
        old="return bound <= now",
        new="return False",
        breaks="a ready row waits for members for as long as their draft takes",
        killed_by=(
            "tests/pool/test_grouping.py::test_a_target_waits_for_members_that_are_being_drafted_but_not_beyond_the_bound",
        ),
    ),
    Mutant(
        name="equal-lengths-starve-the-oldest",
        path="specdec_core/scheduler/grouping.py",
        old="if not is_overdue and self._entered.has_full:",
        new="if self._entered.has_full:",
        breaks="a row of a rare length waits for ever (the paper's P99 of 134 s)",
        killed_by=(
            "tests/pool/test_grouping.py::test_overdue_rows_go_first_by_age_and_the_rest_of_the_group_resembles_the_oldest",
        ),
    ),
    Mutant(
        name="overdue-rows-by-likeness",
        path="specdec_core/scheduler/grouping.py",
        old="if since > overdue_at or len(chosen) == self._max_size:",
        new="if True:",
        breaks="a row unlike the oldest one waits without bound",
        killed_by=(
            "tests/pool/test_grouping.py::test_overdue_rows_go_first_by_age_and_the_rest_of_the_group_resembles_the_oldest",
        ),
    ),
    Mutant(
        name="oldest-bucket-instead-of-the-largest",
        path="specdec_core/scheduler/grouping.py",
        old="key=lambda bucket: (-len(bucket), bucket[0])",
        new="key=lambda bucket: bucket[0]",
        breaks="rows of a common length wait behind those of a rare one",
        killed_by=("tests/pool/test_grouping.py::test_the_largest_bucket_wins_among_full_ones",),
    ),
    Mutant(
        name="row-that-left-stays-in-its-bucket",
        path="specdec_core/scheduler/grouping.py",
        old="        if len(bucket) < self._max_size:\n",
        new="        if len(bucket) < self._max_size - 1:\n",
        breaks="a group goes out with fewer rows than are ready",
        killed_by=(
            "tests/pool/test_grouping.py::test_rows_that_come_and_go_are_chosen_as_from_a_list_of_them",
        ),
    ),
    Mutant(
        name="cohorts-that-have-gone-pile-up",
        path="specdec_core/scheduler/grouping.py",
        old="if len(sinces) > 2 * len(self) + _SPARE:",
        new="if False:",
        breaks="behind a row that stays, every group that has gone leaves a record for ever",
        killed_by=(
            "tests/pool/test_upkeep.py::test_rows_that_come_and_go_behind_one_that_stays_leave_nothing",
        ),
    ),
    Mutant(
        name="row-that-left-is-entered-by-likeness",
        path="specdec_core/scheduler/grouping.py",
        old="        if self._by_shape and self._to_enter.pop(sequence_id, None) is None:\n",
        new="        if self._by_shape and sequence_id not in self._to_enter:\n",
        breaks="every row that ever was ready is remembered and entered once more",
        killed_by=(
            "tests/pool/test_upkeep.py::test_a_row_that_left_before_it_was_compared_with_others_is_not_chosen",
        ),
    ),
    Mutant(
        name="answered-row-is-not-planned-again",
        path="specdec_core/scheduler/results.py",
        old="changed[sequence_id] = sequence",
        new="",
        breaks="a sequence stops for good after its first round",
        killed_by=(
            "tests/pool/test_grouping.py::test_a_drafted_member_joins_the_group_that_waited_for_it",
        ),
    ),
    Mutant(
        name="sequence-that-left-stays-on-the-board",
        path="specdec_core/scheduler/replicas.py",
        old="        self.board.forget(sequence.sequence_id)\n",
        new="",
        breaks="a group is formed with a sequence that has ended",
        killed_by=(
            "tests/pool/test_life.py::test_an_abort_at_any_status_tells_the_client_at_once_and_leaves_nothing",
        ),
    ),
)
