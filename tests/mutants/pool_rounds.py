"""Defects of the pool's rounds: what is leased, and what an answer does."""

from tests.mutants.mutant import Mutant

_SCORE_TEST = (
    "tests/pool/test_logprobs.py::test_those_of_a_prompt_come_whole_with_its_first_token[3]"
)

MUTANTS = (
    Mutant(
        name="draft-cache-one-beyond-agreement",
        path="specdec_core/scheduler/results.py",
        old="agreed_len = row.end_len + answer.num_accepted",
        new="agreed_len = row.end_len + answer.num_accepted + 1",
        breaks="the draft keeps the KV of a rejected token and drafts behind it",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_draft_never_needs_a_miss_to_find_its_place_after_a_rejection",
        ),
    ),
    Mutant(
        name="draft-cache-not-cut-by-a-rejection",
        path="specdec_core/scheduler/results.py",
        old="sequence.draft.cached_len = min(sequence.draft.cached_len, agreed_len)",
        new="sequence.draft.cached_len = sequence.draft.cached_len",
        breaks="every rejection costs a miss: the pool believes the draft caches rejected tokens",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_draft_never_needs_a_miss_to_find_its_place_after_a_rejection",
        ),
    ),
    Mutant(
        name="target-rereads-the-last-round",
        path="specdec_core/scheduler/results.py",
        old="place.cached_len = held_len if held_len < num_ids else num_ids - 1",
        new="place.cached_len = row.base_len",
        breaks="every round feeds the tokens of the round before again",
        killed_by=(
            "tests/pool/test_life.py::test_rows_carry_the_hash_of_what_the_replica_should_cache_and_the_rest_of_the_ids",
        ),
    ),
    Mutant(
        name="answer-not-compared-with-the-proposal",
        path="specdec_core/scheduler/results.py",
        old="        and (n == 0 or tokens[:n] == row.proposal[:n])\n",
        new="",
        breaks="a replica that answers for another proposal commits its tokens",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_row_that_cannot_be_run_ends_its_request_alone",
        ),
    ),
    Mutant(
        name="bonus-token-not-required",
        path="specdec_core/scheduler/results.py",
        old="        len(tokens) == num_tokens\n",
        new="        len(tokens) >= n\n",
        breaks="an answer without the target's own token is taken",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_row_that_cannot_be_run_ends_its_request_alone",
        ),
    ),
    Mutant(
        name="first-place-of-a-chunk-unscored",
        path="specdec_core/scheduler/rows.py",
        old="base_len = min(base_len, len(sequence.prompt_logprobs))",
        new="pass",
        breaks="where the chunks of a prompt meet, a log-probability is missing",
        killed_by=(_SCORE_TEST,),
    ),
    Mutant(
        name="scores-of-a-replay-told-again",
        path="specdec_core/scheduler/sequence.py",
        old="self.prompt_logprobs += prompt_logprobs[len(self.prompt_logprobs) - base_len :]",
        new="self.prompt_logprobs += prompt_logprobs",
        breaks="a prompt that is read again reports its log-probabilities twice",
        killed_by=(_SCORE_TEST,),
    ),
    Mutant(
        name="accepted-tokens-behind-a-stop-counted",
        path="specdec_core/scheduler/results.py",
        old="num_accepted = min(num_accepted, num_tokens)",
        new="num_accepted = min(num_accepted, len(answer.tokens))",
        breaks="tokens that were never emitted count as accepted: acceptance looks better",
        killed_by=("tests/pool/test_life.py::test_a_token_behind_the_stop_was_not_accepted",),
    ),
    Mutant(
        name="stop-ids-ignored-in-a-round",
        path="specdec_core/scheduler/results.py",
        old="cut_at_stop(answer.tokens, sequence.stop_ids, budget)",
        new="cut_at_stop(answer.tokens, frozenset(), budget)",
        breaks="a drafted and accepted end id is followed by more tokens",
        killed_by=(
            "tests/pool/test_life.py::test_a_stop_inside_an_accepted_proposal_cuts_what_follows",
        ),
    ),
    Mutant(
        name="miss-not-believed",
        path="specdec_core/scheduler/results.py",
        old="place.cached_len = cached_len if cached_len < row.base_len else 0",
        new="place.cached_len = cached_len",
        breaks="a replica that misses at the same length again is asked for ever",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_kv_miss_is_met_with_the_ids_that_are_missing",
        ),
    ),
    Mutant(
        name="rules-not-sent-again",
        path="specdec_core/scheduler/results.py",
        old="place.has_rules = place.cached_len > 0",
        new="place.has_rules = True",
        breaks="a replica that lost a sequence never gets its sampling parameters again",
        killed_by=(
            "tests/pool/test_replicas.py::test_a_replica_that_forgot_even_the_parameters_gets_them_again",
        ),
    ),
    Mutant(
        name="unsettled-reservation",
        path="specdec_core/scheduler/results.py",
        old="        replica.settle(place, held_len, num_ids)\n",
        new="",
        breaks="blocks of rejected tokens stay reserved",
        killed_by=(
            "tests/pool/test_blocks.py::test_blocks_of_rejected_tokens_are_given_back_at_once",
        ),
    ),
    Mutant(
        name="a-failing-draft-ends-the-request",
        path="specdec_core/scheduler/results.py",
        old="        if replica.role is Role.DRAFT:\n"
        "            sequence.is_draftable = False\n"
        "            self._placement.leave(sequence, Role.DRAFT)\n"
        "        elif answer.status",
        new="        if answer.status",
        breaks="an error of the draft model reaches the client",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_draft_that_refuses_a_row_never_ends_the_request",
        ),
    ),
    Mutant(
        name="side-lease-makes-the-row-younger",
        path="specdec_core/scheduler/results.py",
        old="if is_target or row.num_choices > 0:  # it was the owner",
        new="if True:",
        breaks="a sequence whose draft catches up loses its place in the queue each time",
        killed_by=(
            "tests/pool/test_grouping.py::test_a_side_lease_does_not_make_a_ready_row_younger",
        ),
    ),
    Mutant(
        name="draft-rereads-the-prefix",
        path="specdec_core/scheduler/rows.py",
        old="base_len = min(place.cached_len, len(sequence.ids) - 1)\n"
        "    end_len = min(base_len + chunk, len(sequence.ids))\n"
        "    row",
        new="base_len = 0\n    end_len = min(base_len + chunk, len(sequence.ids))\n    row",
        breaks="the draft keeps no KV between rounds and reads the whole prefix every time",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_caught_up_draft_proposes_and_its_cache_is_fed_only_what_it_lacks",
        ),
    ),
    Mutant(
        name="proposal-checked-in-the-middle-of-a-prefill",
        path="specdec_core/scheduler/rows.py",
        old="checked = proposal if is_last else ()",
        new="checked = proposal",
        breaks="drafted tokens are fed before the prompt is complete",
        killed_by=("tests/pool/test_drafting.py::test_a_chunk_of_the_prompt_carries_no_proposal",),
    ),
    Mutant(
        name="k-choices-instead-of-k-plus-1",
        path="specdec_core/scheduler/rows.py",
        old="num_choices = num_checked + 1 if is_last else 0",
        new="num_choices = max(num_checked, 1) if is_last else 0",
        breaks="no bonus token: K = 1 gives no speed-up at all",
        killed_by=(
            "tests/pool/test_blocks.py::test_blocks_of_rejected_tokens_are_given_back_at_once",
        ),
    ),
    Mutant(
        name="shrunk-row-keeps-its-choices",
        path="specdec_core/scheduler/grouping.py",
        old="num_choices=row.num_choices - excess",
        new="num_choices=row.num_choices",
        breaks="a proposal cut for lack of room is verified at positions that are not fed",
        killed_by=(
            "tests/pool/test_blocks.py::test_a_draft_without_room_for_all_keeps_the_oldest",
        ),
    ),
    Mutant(
        name="whole-proposal-into-too-little-room",
        path="specdec_core/scheduler/grouping.py",
        old="proposal=row.proposal[:num_drafted]",
        new="proposal=row.proposal",
        breaks="more tokens are fed than blocks were reserved for",
        killed_by=(
            "tests/pool/test_blocks.py::test_a_proposal_shrinks_before_anybody_is_preempted",
        ),
    ),
    Mutant(
        name="stale-base-hash",
        path="specdec_core/scheduler/rows.py",
        old="        sequence.prefix_hashes[base_len],\n",
        new="        sequence.prefix_hashes[base_len - 1],\n",
        breaks="the check of what a replica caches compares another prefix",
        killed_by=(
            "tests/pool/test_life.py::test_rows_carry_the_hash_of_what_the_replica_should_cache_and_the_rest_of_the_ids",
        ),
    ),
    Mutant(
        name="rules-on-every-lease",
        path="specdec_core/scheduler/rows.py",
        old="        None if place.has_rules else sequence.request.rules,\n",
        new="        sequence.request.rules,\n",
        breaks="a replica that lost the sequence would start it anew and silently",
        killed_by=("tests/pool/test_life.py::test_parameters_travel_on_first_use_only",),
    ),
    Mutant(
        name="proposal-outlives-its-length",
        path="specdec_core/scheduler/sequence.py",
        old="return _PROPOSED if current.committed_len == len(self.ids) else _READY",
        new="return _PROPOSED if current.committed_len <= len(self.ids) else _READY",
        breaks="a sequence counts as proposed with a proposal of an earlier length",
        killed_by=("tests/pool/test_life.py::test_a_proposal_is_spent_once_it_was_verified",),
    ),
    Mutant(
        name="budget-counts-the-prompt",
        path="specdec_core/scheduler/results.py",
        old="budget = sequence.max_len - len(sequence.ids)",
        new="budget = sequence.request.params.max_tokens - len(sequence.ids)",
        breaks="a long prompt leaves fewer tokens to emit",
        killed_by=(
            "tests/pool/test_life.py::test_a_resumed_request_continues_its_indexes_and_its_budget",
        ),
    ),
    Mutant(
        name="resumed-tokens-count-again",
        path="specdec_core/scheduler/sequence.py",
        old="return len(self.ids) - self.num_prompt",
        new="return (\n"
        "            len(self.ids)\n"
        "            - len(self.request.prompt_token_ids)\n"
        "            - len(self.request.emitted_token_ids)\n"
        "        )",
        breaks="a resumed request repeats the indexes of its events and exceeds max_tokens",
        killed_by=(
            "tests/pool/test_life.py::test_a_resumed_request_continues_its_indexes_and_its_budget",
        ),
    ),
    Mutant(
        name="accepted-position-off-by-one",
        path="specdec_core/scheduler/stats.py",
        old="dict.fromkeys(range(num_tokens), num_rounds)",
        new="dict.fromkeys(range(1, num_tokens + 1), num_rounds)",
        breaks="acceptance per position is reported for the next position",
        killed_by=("tests/pool/test_life.py::test_the_last_event_carries_the_stats",),
    ),
)
