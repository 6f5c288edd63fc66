"""Defects of how the K controller learns: paces, looks at other sizes, what it says of K."""

from tests.mutants.mutant import Mutant

_COSTS = "tests/pool/test_step_costs.py::"
_LOOKING = "tests/pool/test_looking.py::"
_PRICES = "tests/pool/test_pass_prices.py::"
_CAUSES = "tests/pool/test_k_cause.py::"
_SHARED = "tests/pool/test_shared_device.py::"
_GOODPUT = "tests/pool/test_goodput.py::"
_COPIED = "tests/pool/test_copy_belief.py::"

MUTANTS = (
    Mutant(
        name="times-beside-other-work-kept",
        path="specdec_core/loading/profiler.py",
        old="    if are_plausible(found):\n",
        new="    if found:\n",
        breaks="a first start on a busy machine fixes a batch of 8 for all later ones",
        killed_by=("tests/models/test_timing.py::test_times_that_make_no_sense_are_not_kept",),
    ),
    Mutant(
        name="times-of-a-busy-start-kept-for-good",
        path="specdec_core/loading/profiler.py",
        old="    if known is not None and not _are_quicker_now(model, role, known):\n",
        new="    if known is not None:\n",
        breaks="a first start beside work that never paused fixes its batch for all later ones",
        killed_by=("tests/models/test_timing.py::test_times_from_a_busier_start_are_found_anew",),
    ),
    Mutant(
        name="copied-tokens-all-alike",
        path="specdec_core/speculation/acceptance.py",
        old="for agreed in range(num_agreed, num_agreed + count):",
        new="for agreed in [num_agreed] * count:",
        breaks="what stands behind accepted tokens is thought as weak as the first",
        killed_by=(
            _COPIED + "test_a_token_behind_accepted_ones_is_as_good_as_behind_as_many_that_matched",
        ),
    ),
    Mutant(
        name="copied-tokens-judged-as-the-first",
        path="specdec_core/speculation/acceptance.py",
        old="kind = _KINDS[min(num_agreed + place, MOST_AGREED)]",
        new="kind = _KINDS[min(num_agreed, MOST_AGREED)]",
        breaks="a text that copies much makes every single equal token look good",
        killed_by=(_COPIED + "test_each_token_of_a_run_is_a_trial_of_its_own_kind",),
    ),
    Mutant(
        name="copied-tokens-without-an-own-past",
        path="specdec_core/speculation/acceptance.py",
        old="self._beliefs[kind].of(history, kind)",
        new="self._beliefs[kind].of(AcceptanceHistory(history.is_drawn), kind)",
        breaks="in a large batch a text that loops is checked no sooner than others",
        killed_by=(
            _COPIED + "test_a_sequence_whose_copies_are_better_than_others_is_believed_in_more",
        ),
    ),
    Mutant(
        name="large-batches-go-by-agreement",
        path="specdec_core/speculation/goodput.py",
        old="return num_live <= FEW",
        new="return True",
        breaks="at 32 streams a target waits 0.9 ms longer for each group with drafts",
        killed_by=(
            _COPIED
            + "test_in_a_larger_batch_nobody_goes_by_agreement_and_one_equal_token_finds_nothing",
        ),
    ),
    Mutant(
        name="agreement-not-told",
        path="specdec_core/scheduler/verification_budget.py",
        old="0 if is_drafted or sequence.round is None else sequence.round.num_agreed,",
        new="0,",
        breaks="what follows one equal token is checked as what follows eight",
        killed_by=(
            "tests/pool/test_verification_budget.py"
            "::test_a_target_s_group_checks_what_the_policy_chooses",
        ),
    ),
    Mutant(
        name="lookup-keeps-the-draft-out",
        path="specdec_core/speculation/goodput.py",
        old="            self._has_draft = True\n",
        new="",
        breaks="with both, the draft model is never asked, as some token always occurred before",
        killed_by=(
            _COPIED
            + "test_a_draft_that_is_there_is_asked_rather_than_what_follows_one_equal_token",
        ),
    ),
    Mutant(
        name="pace-never-followed",
        path="specdec_core/speculation/step_costs.py",
        old="self.pace *= exp(_PACE_SHARE * size.weight / (size.weight + _LINE_WEIGHT) * surprise)",
        new="self.pace *= 1.0",
        breaks="a machine that is a little slower makes the size that is run look dear",
        killed_by=(_COSTS + "test_a_machine_that_changes_its_pace_changes_it_for_all_sizes[1.3]",),
    ),
    Mutant(
        name="every-outlier-is-the-machine",
        path="specdec_core/speculation/step_costs.py",
        old="        elif size.num_outliers == _NUM_IN_A_ROW:\n            size.begin(surprise)\n",
        new="",
        breaks="a size that became dearer is believed to cost what it did, and is run for ever",
        killed_by=(_COSTS + "test_one_size_that_became_dearer_is_told_from_a_slow_machine[0.08]",),
    ),
    Mutant(
        name="outliers-of-both-sides-add-up",
        path="specdec_core/speculation/step_costs.py",
        old="if self._outliers and self._outliers[0] * surprise < 0.0:",
        new="if len(self._outliers) > _NUM_IN_A_ROW:",
        breaks="two slow passes and a fast one are taken for another pace of the machine",
        killed_by=(_COSTS + "test_slow_passes_and_fast_ones_are_no_new_pace",),
    ),
    Mutant(
        name="first-pass-believed-whatever-it-took",
        path="specdec_core/speculation/step_costs.py",
        old="most = exp(_OUTLIER) * self.at(sequences, rows) if is_trusted else seconds",
        new="most = seconds",
        breaks="a size whose first pass met other work is left alone for hundreds of passes",
        killed_by=(_COSTS + "test_the_first_pass_of_a_size_is_believed_within_bounds",),
    ),
    Mutant(
        name="looks-cost-nothing",
        path="specdec_core/speculation/exploration.py",
        old="        self.credit -= _price(looked_at, best)\n",
        new="",
        breaks="every pass is run in a size that is only to be learnt",
        killed_by=(_LOOKING + "test_looks_take_no_more_than_passes_have_earned",),
    ),
    Mutant(
        name="a-look-may-take-any-time",
        path="specdec_core/speculation/exploration.py",
        old=" and _price(one, best) <= self.credit",
        new="",
        breaks="one look takes as long as a hundred passes",
        killed_by=(_LOOKING + "test_a_look_that_takes_more_than_was_earned_waits",),
    ),
    Mutant(
        name="looked-at-without-hope",
        path="specdec_core/speculation/exploration.py",
        old="one.hope > known and ",
        new="",
        breaks="sizes that cannot be the best are run again and again",
        killed_by=(_LOOKING + "test_a_size_that_could_not_be_the_best_is_never_looked_at",),
    ),
    Mutant(
        name="the-most-hopeful-look-whatever-it-takes",
        path="specdec_core/speculation/exploration.py",
        old="key=lambda one: (one.hope - known) / _price(one, best)",
        new="key=lambda one: one.hope",
        breaks="the time for looks goes to one dear size",
        killed_by=(
            _LOOKING
            + "test_of_two_sizes_the_one_that_may_gain_most_for_its_price_is_looked_at_first",
        ),
    ),
    Mutant(
        name="settled-prices-never-change",
        path="specdec_core/speculation/pass_prices.py",
        old="if is_news or self.num_seen % _READ_EVERY == 0:",
        new="if is_news:",
        breaks="the controller goes by prices of an hour ago",
        killed_by=(_PRICES + "test_settled_prices_are_computed_again_every_eight_passes",),
    ),
    Mutant(
        name="a-surprise-waits",
        path="specdec_core/speculation/pass_prices.py",
        old="is_news = self.num_seen <= _SETTLED or abs(surprise) > _NEWS",
        new="is_news = self.num_seen <= _SETTLED",
        breaks="a machine that became slower is believed eight passes later",
        killed_by=(_PRICES + "test_settled_prices_are_computed_again_at_once_after_a_surprise",),
    ),
    Mutant(
        name="a-long-pass-is-believed",
        path="specdec_core/speculation/pass_prices.py",
        old="return _NOISE**2 + max(surprise - _LONG, 0.0) ** 2",
        new="return _NOISE**2",
        breaks="one pass that met other work keeps a service from drafting for hundreds of passes",
        killed_by=(_PRICES + "test_drafted_passes_that_met_other_work_are_doubted[2400-15]",),
    ),
    Mutant(
        name="one-slow-pass-is-the-machine",
        path="specdec_core/speculation/pass_prices.py",
        old="if len(self._far) == _NUM_IN_A_ROW:",
        new="if self._far:",
        breaks="a pass that met other work moves all prices",
        killed_by=(_PRICES + "test_one_slow_pass_met_other_work_and_three_are_the_machine",),
    ),
    Mutant(
        name="a-look-is-called-the-best",
        path="specdec_core/speculation/goodput.py",
        old="DraftLengthReason.GOODPUT if looked_at is chosen else DraftLengthReason.PROBE",
        new="DraftLengthReason.GOODPUT",
        breaks="metrics say that the controller promises most where it only tries",
        killed_by=(_CAUSES + "test_the_controller_tells_what_it_does_to_learn",),
    ),
    Mutant(
        name="shrunk-for-room-without-a-word",
        path="specdec_core/scheduler/batch_builder.py",
        old="                plan.note(DraftLengthReason.ROOM)\n",
        new="",
        breaks="an operator looks for a K controller at fault where KV blocks are short",
        killed_by=(_CAUSES + "test_a_target_without_blocks_for_a_proposal_is_why",),
    ),
    Mutant(
        name="unheard-draft-has-a-cause",
        path="specdec_core/scheduler/results.py",
        old="cause = _NO_DRAFT if current.proposal is None else current.cause",
        new="cause = current.cause",
        breaks="rounds that did not wait for the draft count as decided by the policy",
        killed_by=(_CAUSES + "test_the_first_token_and_the_last_have_causes_of_their_own",),
    ),
    Mutant(
        name="nothing-found-counts-as-configured",
        path="specdec_core/scheduler/proposals.py",
        old="cause = _GOODPUT if rests else _NOTHING_FOUND",
        new="cause = _GOODPUT",
        breaks="an operator cannot see that prompt lookup has nothing to offer",
        killed_by=(_CAUSES + "test_lookup_that_finds_nothing_is_why",),
    ),
    Mutant(
        name="lookup-in-vain-never-rests",
        path="specdec_core/speculation/ngram_backoff.py",
        old="self.num_left = self._next_rest + 1  # the pass that is chosen counts",
        new="self.num_left = 0",
        breaks="a large batch pays for lookups of which nothing is ever checked",
        killed_by=(_CAUSES + "test_lookup_in_vain_rests_and_comes_back",),
    ),
    Mutant(
        name="lookup-rests-for-a-few",
        path="specdec_core/speculation/ngram_backoff.py",
        old="elif size > FEW:",
        new="else:",
        breaks="one stream's loop is found up to 32 passes late",
        killed_by=(_CAUSES + "test_lookup_never_rests_for_a_few",),
    ),
    Mutant(
        name="lookup-in-vain-rests-for-four-passes-for-ever",
        path="specdec_core/speculation/ngram_backoff.py",
        old="min(2 * self._next_rest, _LONGEST_REST)",
        new="_FIRST_REST",
        breaks="a large batch whose answers repeat nothing looks for copies in each fifth pass",
        killed_by=(
            "tests/pool/test_goodput_decisions.py::"
            "test_prompt_lookup_rests_twice_as_long_each_time_that_it_looked_in_vain",
        ),
    ),
    Mutant(
        name="long-rests-outlast-a-lookup-that-pays",
        path="specdec_core/speculation/ngram_backoff.py",
        old="self._next_rest, self._surprise = _FIRST_REST, 0.0",
        new="self._surprise = 0.0",
        breaks="a batch that has begun to repeat itself rests for 32 passes again soon",
        killed_by=(
            "tests/pool/test_goodput_decisions.py::test_one_lookup_that_pays_ends_the_long_rests",
        ),
    ),
    Mutant(
        name="what-was-right-against-all-odds-ends-no-rest",
        path="specdec_core/speculation/ngram_backoff.py",
        old="if self._surprise > 1.0 + sqrt(self._num_found):",
        new="if False:",
        breaks="a batch that begins to repeat itself waits for many rests until it is believed",
        killed_by=(
            "tests/pool/test_goodput.py::"
            "test_a_large_batch_that_begins_to_repeat_itself_is_found_out_soon",
            "tests/pool/test_goodput_decisions.py::"
            "test_found_tokens_that_were_right_against_all_odds_end_the_rests",
        ),
    ),
    Mutant(
        name="a-group-that-offers-nothing-is-asked-for",
        path="specdec_core/scheduler/verification_budget.py",
        old="if not any([plan.row.proposal for plan in group]):",
        new="if False:",
        breaks="every plain round waits for a choice among no tokens",
        killed_by=(
            "tests/pool/test_verification_budget.py::"
            "test_a_target_s_group_checks_what_the_policy_chooses",
        ),
    ),
    Mutant(
        name="lookup-rests-for-small-groups-too",
        path="specdec_core/speculation/ngram_backoff.py",
        old="not self.num_left or size < self._size_in_vain",
        new="not self.num_left",
        breaks="the last sequences of a batch, which would gain, wait for the rest to end",
        killed_by=(_CAUSES + "test_lookup_in_vain_rests_and_comes_back",),
    ),
    Mutant(
        name="drawn-tokens-are-foretold-by-all",
        path="specdec_core/speculation/acceptance.py",
        old="seen = self._kinds[history.is_drawn]",
        new="seen = self.seen",
        breaks="greedy answers say how many drawn tokens are accepted",
        killed_by=(
            "tests/pool/test_acceptance_belief.py::test_drawn_tokens_are_foretold_by_those_that_were_drawn",
        ),
    ),
    Mutant(
        name="rows-that-gain-nothing-count-for-nothing",
        path="specdec_core/speculation/token_selection.py",
        old="margin = _BARE_MARGIN * log2(1 + group.num_bare)",
        new="margin = 0.0",
        breaks="a large batch that ends together is slower with drafts",
        killed_by=(
            "tests/pool/test_group_choice.py::test_the_more_sequences_gain_nothing_the_more_a_drafted_token_must_earn",
        ),
    ),
    Mutant(
        name="a-shared-device-keeps-no-order",
        path="specdec_core/scheduler/replicas.py",
        old="return next(others, None) or Device()",
        new="return Device()",
        breaks="a draft that waits for its target's pass looks dear, and is given up",
        killed_by=(_SHARED + "test_a_pass_is_not_charged_for_the_turn_of_the_other_model[4]",),
    ),
    Mutant(
        name="drafted-on-any-device",
        path="specdec_core/scheduler/replicas.py",
        old="return _roomiest(near, length) or _roomiest(self.drafts, length)",
        new="return _roomiest(self.drafts, length)",
        breaks="a group's rows come back from as many devices as there are, a few from each",
        killed_by=(_SHARED + "test_sequences_are_drafted_on_the_device_of_their_target",),
    ),
    Mutant(
        name="small-groups-go-ahead-to-a-busy-device",
        path="specdec_core/scheduler/device.py",
        old="if not (self.is_shared and self.num_open) or self._answers[0] > ready_since:",
        new="if True:",
        breaks="groups that broke up once stay small, and the device runs twice as many passes",
        killed_by=(
            _SHARED + "test_a_small_group_lets_a_shared_device_run_three_passes_first",
            _SHARED
            + "test_groups_that_take_turns_stay_full_though_passes_take_longer_than_the_bound",
        ),
    ),
    Mutant(
        name="a-hung-pass-holds-up-its-device",
        path="specdec_core/scheduler/device.py",
        old="return max(self._answers[-1], ready_since) + _PATIENCE * max(self._passes)",
        new="return inf",
        breaks="a request waits for a pass of another replica that does not end",
        killed_by=(_SHARED + "test_a_pass_that_does_not_end_holds_up_no_group_of_another_replica",),
    ),
    Mutant(
        name="the-first-of-a-device-takes-all",
        path="specdec_core/scheduler/replicas.py",
        old="        if not self.leases:\n            return True\n",
        new="",
        breaks="of two targets on one accelerator the second runs when the first has nothing left",
        killed_by=(
            _SHARED + "test_who_has_nothing_of_a_full_device_is_sent_one",
            _SHARED + "test_of_two_targets_on_one_device_none_starves[none]",
            _SHARED + "test_of_two_targets_on_one_device_none_starves[draft_model]",
        ),
    ),
    Mutant(
        name="a-draft-takes-all-of-its-device",
        path="specdec_core/scheduler/replicas.py",
        old="if self.role is Role.DRAFT and self.device.is_shared:",
        new="if False:",
        breaks="a draft that hangs stops its target, too, until its lease is over",
        killed_by=(_SHARED + "test_a_draft_that_does_not_answer_leaves_its_device_to_the_target",),
    ),
    Mutant(
        name="a-time-that-has-passed-is-woken-for",
        path="specdec_core/scheduler/batch_builder.py",
        old="                replica.wake_at = None\n",
        new="",
        breaks="the pool is asked again and again while a shared device is busy",
        killed_by=(_SHARED + "test_no_time_to_wake_has_passed_while_a_device_is_busy",),
    ),
    Mutant(
        name="recordings-count-as-passes",
        path="specdec_core/scheduler/device.py",
        old="seconds = max(seconds - recording_s, 0.0)",
        new="seconds = max(seconds, 0.0)",
        breaks="a GPU's first passes, which are recorded, make it look too slow to draft for",
        killed_by=(_SHARED + "test_what_a_replica_records_is_no_part_of_what_its_lease_took",),
    ),
    Mutant(
        name="a-lease-costs-its-steps-alone",
        path="specdec_core/speculation/goodput.py",
        old="self.draft.observe(sum(lengths), max(lengths), seconds)",
        new="self.draft.observe(1, 1, seconds / max(lengths))",
        breaks="few steps look dear and many cheap",
        killed_by=(
            _GOODPUT + "test_what_a_drafts_lease_takes_besides_its_steps_is_told_from_them",
        ),
    ),
    Mutant(
        name="a-resting-draft-weighed-for-each-sequence",
        path="specdec_core/speculation/goodput.py",
        old="if asked not in self._pays_if_good:",
        new="if True:",
        breaks="a round of 64 waits 12 ms for the pool",
        killed_by=(_GOODPUT + "test_plans_are_made_once_for_all_sequences_of_a_round",),
    ),
)
