"""Defects of who drafts and how much: proposals, n-grams, K, the verification budget."""

from tests.mutants.mutant import Mutant

_OVERLAP_TESTS = "tests/pool/test_overlap.py::"

MUTANTS = (
    Mutant(
        name="proposal-beyond-the-budget",
        path="specdec_core/scheduler/proposals.py",
        old="cap = sequence.max_len - committed_len - 1",
        new="cap = sequence.max_len - committed_len",
        breaks="a token is drafted and verified that can never be emitted",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_proposal_never_exceeds_the_remaining_budget",
        ),
    ),
    Mutant(
        name="stale-proposal-reused",
        path="specdec_core/scheduler/proposals.py",
        old="if current is None or current.committed_len != len(sequence.ids):",
        new="if current is None:",
        breaks="the proposal of an earlier round is verified behind other tokens",
        killed_by=(
            "tests/pool/test_blocks.py::test_blocks_of_rejected_tokens_are_given_back_at_once",
        ),
    ),
    Mutant(
        name="first-token-waits-for-the-draft",
        path="specdec_core/scheduler/proposals.py",
        old=" or sequence.draft is None or not sequence.is_caught_up:",
        new=" or sequence.draft is None:",
        breaks="the time to the first token includes the draft's prefill",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_caught_up_draft_proposes_and_its_cache_is_fed_only_what_it_lacks",
        ),
    ),
    Mutant(
        name="speculation-cannot-be-switched-off",
        path="specdec_core/speculation/limits.py",
        old="if config.method is SpecMethod.NONE or not request.speculation_enabled:",
        new="if config.method is SpecMethod.NONE:",
        breaks="a request that asks for plain decoding is drafted",
        killed_by=("tests/pool/test_drafting.py::test_a_request_can_switch_speculation_off",),
    ),
    Mutant(
        name="request-raises-k-above-the-limit",
        path="specdec_core/speculation/limits.py",
        old="return min(config.num_draft_tokens, request.num_draft_tokens)",
        new="return request.num_draft_tokens",
        breaks="a client makes the service draft as many tokens as it likes",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_request_chooses_its_k_below_the_configured_one",
        ),
    ),
    Mutant(
        name="ngram-prefers-the-shorter-match",
        path="specdec_core/speculation/ngram.py",
        old="if match_len > best_len:",
        new="if match_len >= best_len:",
        breaks="an older occurrence is proposed instead of the latest",
        killed_by=(
            "tests/drafting/test_ngram.py::test_the_most_recent_of_equally_long_occurrences_wins",
        ),
    ),
    Mutant(
        name="ngram-copy-runs-off-the-end",
        path="specdec_core/speculation/ngram.py",
        old="        while len(copied) < num_tokens:",
        new="        while False:",
        breaks="a loop is proposed once round only: short proposals where long ones are right",
        killed_by=("tests/drafting/test_ngram.py::test_a_loop_is_continued_beyond_the_end",),
    ),
    Mutant(
        name="ngram-forgets-full-tables",
        path="specdec_core/speculation/ngram.py",
        old="            while end == _NONE and num_older > 0:\n",
        new="            while False:\n",
        breaks="a long text is searched in its last part alone: fewer tokens are proposed",
        killed_by=(
            "tests/drafting/test_ngram.py::test_a_long_list_that_grows_finds_what_a_search_finds",
        ),
    ),
    Mutant(
        name="ngram-walks-without-bound",
        path="specdec_core/speculation/ngram.py",
        old="for _ in range(_MAX_STEPS):",
        new="for _ in range(len(ids)):",
        breaks="a client's ids of one hash make every decision as long as its prompt",
        killed_by=(
            "tests/drafting/test_ngram.py::test_a_proposal_looks_at_few_places_whatever_the_ids",
        ),
    ),
    Mutant(
        name="histogram-without-zero-acceptance",
        path="specdec_core/speculation/k_policy.py",
        old="        if num_drafted:\n",
        new="        if num_accepted:\n",
        breaks="rounds that accepted nothing are left out: the mean acceptance length is too high",
        killed_by=(
            "tests/pool/test_k_policy.py::test_a_round_that_accepted_nothing_counts_and_a_plain_one_does_not",
        ),
    ),
    Mutant(
        name="breaking-token-is-no-trial",
        path="specdec_core/speculation/goodput.py",
        old="num_trials = min(num_accepted + 1, len(pairs))",
        new="num_trials = num_accepted",
        breaks="every drafter seems always right, and K never falls",
        killed_by=("tests/pool/test_goodput.py::test_it_follows_a_text_that_changes_its_nature",),
    ),
    Mutant(
        name="rows-cost-nothing",
        path="specdec_core/speculation/step_costs.py",
        old="                slopes[i] = slope\n",
        new="                slopes[i] = 0.0\n",
        breaks="tokens are drafted that cost more time than they save",
        killed_by=(
            "tests/pool/test_step_costs.py::test_costs_are_learnt_from_few_passes_and_never_fall_with_the_rows",
        ),
    ),
    Mutant(
        name="the-hosts-time-is-not-seen",
        path="specdec_core/scheduler/device.py",
        old="seconds = max(now - began, 0.0 if self.is_shared else pass_s)",
        new="seconds = pass_s",
        breaks="long proposals look dearer than they are: each saves the host a round",
        killed_by=(
            "tests/pool/test_round_seconds.py::test_the_time_between_result_and_next_lease_belongs_to_the_next_round",
        ),
    ),
    Mutant(
        name="the-group-before-counts-twice",
        path="specdec_core/scheduler/device.py",
        old="max(lease.since, self._answers[-1])",
        new="lease.since",
        breaks="a group that waited behind another one looks dear",
        killed_by=(
            "tests/pool/test_round_seconds.py::test_a_lease_behind_a_running_one_begins_when_that_one_is_answered",
        ),
    ),
    Mutant(
        name="luck-counts-as-nature",
        path="specdec_core/speculation/acceptance.py",
        old="self._losses.index(min(self._losses))",
        new="self._losses.index(max(self._losses))",
        breaks="a sequence that was unlucky once is drafted for too little",
        killed_by=(
            "tests/pool/test_acceptance_belief.py::test_sequences_that_are_alike_are_not_told_apart_by_luck",
        ),
    ),
    Mutant(
        name="halves-cost-half",
        path="specdec_core/scheduler/pipelining.py",
        old="return 2.0 * max(self._parts_s(num_live, True)) / num_live",
        new="return max(self._parts_s(num_live, True)) / num_live",
        breaks="sequences are split though a pass takes as long for half of them",
        killed_by=(
            _OVERLAP_TESTS + "test_it_is_near_the_better_of_always_and_never[both flat-32]",
        ),
    ),
    Mutant(
        name="a-resting-draft-splits-its-target",
        path="specdec_core/scheduler/pipelining.py",
        old=" or self._num_plain >= _RESTING:",
        new=":",
        breaks="plain decoding runs in halves while no draft has anything to do",
        killed_by=(_OVERLAP_TESTS + "test_a_draft_model_that_rests_leaves_its_targets_whole",),
    ),
    Mutant(
        name="a-shared-draft-has-time-for-all",
        path="specdec_core/speculation/draft_load.py",
        old="return 1.0 if needed_s <= round_s else plain_s / (needed_s - round_s + plain_s)",
        new="return 1.0",
        breaks="targets stand still while their rows queue for a slow draft",
        killed_by=(
            "tests/pool/test_shared_draft.py::test_a_draft_serves_no_more_rounds_than_it_has_time_for[0.5-0.5]",
        ),
    ),
    Mutant(
        name="a-short-draft-is-left-nothing",
        path="specdec_core/scheduler/batch_builder.py",
        old="len(draft.board.clients) - draft.board.max_group_size",
        new="len(draft.board.clients)",
        breaks="rows that the draft would take next go without, and it runs dry",
        killed_by=(
            "tests/pool/test_shared_draft.py::test_rows_that_a_draft_has_no_time_for_are_verified_without_it",
        ),
    ),
    Mutant(
        name="tiles-cost-nothing",
        path="specdec_core/speculation/pass_prices.py",
        old="if self.tile_rows else end",
        new="if False else end",
        breaks="sizes reach across the end of a tile: its step is smeared over both sides",
        killed_by=(
            "tests/pool/test_pass_prices.py::test_rows_of_different_tiles_are_never_of_one_size",
        ),
    ),
    Mutant(
        name="a-slow-machine-makes-one-size-dear",
        path="specdec_core/speculation/step_costs.py",
        old="            self.pace *= exp(sum(self._outliers) / _NUM_IN_A_ROW)\n",
        new="            size.seconds *= exp(sum(self._outliers) / _NUM_IN_A_ROW)\n",
        breaks="after a slow minute the sizes that were not run look cheap, or dear for ever",
        killed_by=(
            "tests/pool/test_step_costs.py::test_a_machine_that_changes_its_pace_changes_it_for_all_sizes[5.0]",
        ),
    ),
    Mutant(
        name="drafting-in-vain-goes-on",
        path="specdec_core/speculation/goodput.py",
        old="most = 0 if self._num_in_vain >= _IN_VAIN else limit",
        new="most = limit",
        breaks="a draft model is asked round after round for tokens that no group checks",
        killed_by=(
            "tests/pool/test_goodput.py::test_a_draft_model_whose_tokens_nobody_checks_rests[7]",
        ),
    ),
    Mutant(
        name="a-request-s-k-overrules-the-policy",
        path="specdec_core/scheduler/proposals.py",
        old="return max(0, min(wanted, limit))",
        new=(
            "named = sequence.request.num_draft_tokens is not None\n"
            "        return limit if named else max(0, min(wanted, limit))"
        ),
        breaks="one client's K makes the passes of all others longer than the policy allows",
        killed_by=(
            "tests/pool/test_drafting.py::test_a_request_s_k_is_an_upper_limit_for_the_policy[3-2-ngram]",
        ),
    ),
    Mutant(
        name="drafting-counts-for-nothing",
        path="specdec_core/speculation/token_selection.py",
        old="seconds = group.spent_s + pass_s * exp(spread**2 / 2.0)",
        new="seconds = pass_s * exp(spread**2 / 2.0)",
        breaks="draft steps are free: a dear draft model makes every round slower",
        killed_by=(
            "tests/pool/test_group_choice.py::test_what_was_spent_on_drafting_makes_another_tile_worth_it",
        ),
    ),
    Mutant(
        name="lookup-is-judged-by-what-was-proposed",
        path="specdec_core/scheduler/results.py",
        old="learn(history, DraftSource.LOOKUP, current.found, answer.tokens, current.num_agreed)",
        new="learn(history, DraftSource.LOOKUP, row.proposal, answer.tokens, current.num_agreed)",
        breaks="prompt lookup that was given up is never tried again",
        killed_by=(
            "tests/pool/test_k_policy.py::test_what_lookup_offered_is_judged_though_it_was_not_proposed",
        ),
    ),
    Mutant(
        name="budget-cuts-the-most-promising",
        path="specdec_core/scheduler/verification_budget.py",
        old="return acceptance_rate(plan.sequence.history) ** length if length",
        new="return -(acceptance_rate(plan.sequence.history) ** length) if length",
        breaks="the tokens most likely to be accepted are left out",
        killed_by=(
            "tests/pool/test_verification_budget.py::test_the_least_promising_tokens_go_first",
        ),
    ),
    Mutant(
        name="budget-forgets-the-bonus-choice",
        path="specdec_core/scheduler/grouping.py",
        old="num_choices=row.num_choices - excess",
        new="num_choices=max(row.num_choices - excess - 1, 1)",
        breaks="a shortened proposal is scored at one position too few",
        killed_by=(
            "tests/pool/test_verification_budget.py::test_the_budget_holds_and_no_row_is_lost",
        ),
    ),
    Mutant(
        name="budget-rounded-down",
        path="specdec_core/scheduler/verification_budget.py",
        old="return -(-num_rows // tile_rows) * tile_rows if tile_rows",
        new="return num_rows // tile_rows * tile_rows if tile_rows",
        breaks="rows of a tile that is paid for are left empty",
        killed_by=(
            "tests/pool/test_verification_budget.py::test_a_budget_is_raised_to_whole_tiles",
        ),
    ),
)
