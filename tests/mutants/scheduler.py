"""Defects of the scheduler: leases, results, KV blocks, groups, the prefill limit."""

from functools import partial

from tests.mutants.mutant import Mutant

_SCORE_TEST = (
    "tests/scheduler/test_logprobs.py::test_those_of_a_prompt_come_whole_with_its_first_token[3]"
)
_TESTS = "tests/scheduler/test_prefill_limit.py::"
_in_results = partial(Mutant, path="specdec_core/scheduler/results.py")

MUTANTS = (
    _in_results(
        name="answer-not-compared-with-the-proposal",
        old="        and (n == 0 or tokens[:n] == row.proposal[:n])\n",
        new="",
        breaks="a replica that answers for another proposal commits its tokens",
        killed_by="tests/scheduler/test_replicas.py::test_a_row_that_cannot_be_run_ends_its_request_alone",
    ),
    Mutant(
        name="first-place-of-a-chunk-unscored",
        path="specdec_core/scheduler/rows.py",
        old="base_len = min(base_len, len(sequence.prompt_logprobs))",
        new="pass",
        breaks="where the chunks of a prompt meet, a log-probability is missing",
        killed_by=_SCORE_TEST,
    ),
    _in_results(
        name="unsettled-reservation",
        old="        replica.release(reservation, held_len, num_ids)\n",
        new="",
        breaks="blocks of rejected tokens stay reserved",
        killed_by="tests/scheduler/test_blocks.py::test_blocks_of_rejected_tokens_are_given_back_at_once",
    ),
    _in_results(
        name="a-failing-draft-ends-the-request",
        old="        if replica.role is Role.DRAFT:\n"
        "            sequence.is_draftable = False\n"
        "            self._requests.leave(replica, sequence)\n"
        "        elif answer.status",
        new="        if answer.status",
        breaks="an error of the draft model reaches the client",
        killed_by="tests/scheduler/test_drafting.py::test_a_draft_that_refuses_a_row_never_ends_the_request",
    ),
    Mutant(
        name="leased-sequence-drained",
        path="specdec_core/scheduler/scheduler.py",
        old="            if not replica.is_leased(sequence):\n"
        "                self._requests.leave(replica, sequence)",
        new="            self._requests.leave(replica, sequence)",
        breaks="draining throws the answer of the running group away",
        killed_by="tests/scheduler/test_replicas.py::test_a_draining_draft_gives_its_proposal_and_then_its_sequences",
    ),
    Mutant(
        name="sequences-die-with-their-replica",
        path="specdec_core/scheduler/scheduler.py",
        old="        self._requests.evacuate(replica)\n        self._replicas.remove(replica_id)",
        new="        self._replicas.remove(replica_id)",
        breaks="requests on a dead target never continue",
        killed_by="tests/scheduler/test_replicas.py::test_sequences_of_a_dead_target_are_replayed_on_another",
    ),
    Mutant(
        name="slot-freed-before-the-lease-answers",
        path="specdec_core/scheduler/batch_builder.py",
        old="        replica.send_frees(self._commands)\n",
        new="",
        breaks="a replica is sent more rows than its blocks hold: the frees come too late",
        killed_by="tests/scheduler/test_blocks.py::test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens",
    ),
    Mutant(
        name="room-not-reserved",
        path="specdec_core/scheduler/replicas.py",
        old="self.num_unreserved_blocks -= more\n            reservation.num_blocks += more",
        new="pass",
        breaks="rows of one group are promised the same free blocks",
        killed_by="tests/scheduler/test_blocks.py::test_the_youngest_sequence_makes_room_and_continues_with_the_same_tokens",
    ),
    Mutant(
        name="sequence-leased-twice",
        path="specdec_core/scheduler/batch_builder.py",
        old="ready.mark_in_flight(sequence.sequence_id, reservation.replica_id)\n"
        "            return\n",
        new="ready.mark_in_flight(sequence.sequence_id, reservation.replica_id)\n",
        breaks="two groups advance one sequence at the same time",
        killed_by="tests/scheduler/test_drafting.py::test_a_caught_up_draft_proposes_and_its_cache_is_fed_only_what_it_lacks",
    ),
    Mutant(
        name="part-of-a-group-goes-behind-a-running-one",
        path="specdec_core/scheduler/batch_rules.py",
        old=" or replica.has_leases",
        new="",
        breaks="where passes are long, the parts of a group take turns for ever",
        killed_by="tests/scheduler/test_grouping.py::test_behind_a_running_group_only_a_full_one_is_sent",
    ),
    _in_results(
        name="answered-row-is-not-planned-again",
        old="changed[sequence_id] = sequence",
        new="",
        breaks="a sequence stops for good after its first round",
        killed_by="tests/scheduler/test_grouping.py::test_a_drafted_member_joins_the_group_that_waited_for_it",
    ),
    Mutant(
        name="sequence-that-left-stays-in-the-ready-queue",
        path="specdec_core/scheduler/replicas.py",
        old="        self.ready_queue.remove(sequence.sequence_id)\n",
        new="",
        breaks="a group is formed with a sequence that has ended",
        killed_by="tests/scheduler/test_life.py::test_an_abort_at_any_status_tells_the_client_at_once_and_leaves_nothing",
    ),
    Mutant(
        name="long-chunks-that-are-checked",
        path="specdec_core/scheduler/rows.py",
        old="    if is_alone and not scores and not is_resuming:\n",
        new="    if is_alone and not scores:\n",
        breaks="a pass checks twice as many ids as memory was planned for",
        killed_by=_TESTS + "test_what_a_client_brings_back_does_not_either",
    ),
    Mutant(
        name="short-prompts-overtake",
        path="specdec_core/scheduler/ready_queue.py",
        old="                limit = 0\n",
        new="",
        breaks="a long prompt waits for as long as short ones come",
        killed_by=_TESTS + "test_nobody_overtakes_a_prompt_that_has_to_wait",
    ),
)
