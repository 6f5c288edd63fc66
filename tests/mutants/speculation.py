"""Defects of speculation: n-gram proposals, pipelining and the controller of K."""

from functools import partial

from tests.mutants.mutant import Mutant

_OVERLAP_TESTS = "tests/scheduler/test_overlap.py::"
_PRICES = "tests/scheduler/test_pass_prices.py::"
_LOOKING = "tests/scheduler/test_looking.py::"
_CAUSES = "tests/scheduler/test_k_cause.py::"
_SHARED = "tests/scheduler/test_shared_device.py::"
_GOODPUT = "tests/scheduler/test_goodput.py::"
_COPIED = "tests/scheduler/test_copy_belief.py::"
_in_ngram = partial(Mutant, path="specdec_core/speculation/ngram.py")
_in_token_selection = partial(Mutant, path="specdec_core/speculation/token_selection.py")

MUTANTS = (
    _in_ngram(
        name="ngram-prefers-the-shorter-match",
        old="if match_len > best_len:",
        new="if match_len >= best_len:",
        breaks="an older occurrence is proposed instead of the latest",
        killed_by=(
            "tests/speculation/test_ngram.py::test_the_most_recent_of_equally_long_occurrences_wins",
        ),
    ),
    _in_ngram(
        name="ngram-copy-runs-off-the-end",
        old="tuple(islice(cycle(copied), num_tokens))",
        new="tuple(islice(copied, num_tokens))",
        breaks="a loop is proposed once round only: short proposals where long ones are right",
        killed_by=("tests/speculation/test_ngram.py::test_a_loop_is_continued_beyond_the_end",),
    ),
    _in_ngram(
        name="ngram-forgets-full-tables",
        old="            if end == _NONE and num_older > 0:\n",
        new="            if False:\n",
        breaks="a long text is searched in its last part alone: fewer tokens are proposed",
        killed_by=(
            "tests/speculation/test_ngram.py::test_a_long_list_that_grows_finds_what_a_search_finds",
        ),
    ),
    _in_ngram(
        name="ngram-walks-without-bound",
        old="for _ in range(_MAX_STEPS):",
        new="for _ in range(len(ids)):",
        breaks="a client's ids of one hash make every decision as long as its prompt",
        killed_by=(
            "tests/speculation/test_ngram.py::test_a_proposal_looks_at_few_places_whatever_the_ids",
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
        name="times-beside-other-work-kept",
        path="specdec_core/loading/profiler.py",
        old="    if are_plausible(timed):\n",
        new="    if timed:\n",
        breaks="a first start on a busy machine fixes a batch of 8 for all later ones",
        killed_by=("tests/models/test_timing.py::test_times_that_make_no_sense_are_not_kept",),
    ),
    Mutant(
        name="times-of-a-busy-start-kept-for-good",
        path="specdec_core/loading/profiler.py",
        old="    if cached is not None and not _are_quicker_now(model, role, cached):\n",
        new="    if cached is not None:\n",
        breaks="a first start beside work that never paused fixes its batch for all later ones",
        killed_by=("tests/models/test_timing.py::test_times_from_a_busier_start_are_found_anew",),
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
        name="every-outlier-is-the-machine",
        path="specdec_core/speculation/pass_prices.py",
        old="            size.variance += surprise**2\n",
        new="            pass\n",
        breaks="a size that became dearer is believed to cost what it did, and is run for ever",
        killed_by=(_PRICES + "test_one_size_that_became_dearer_is_told_from_a_slow_machine[4.0]",),
    ),
    _in_token_selection(
        name="looks-cost-nothing",
        old="        self.credit -= spent\n",
        new="",
        breaks="every pass is run in a size that is only to be learnt",
        killed_by=(_LOOKING + "test_looks_take_no_more_than_passes_have_earned",),
    ),
    _in_token_selection(
        name="a-look-may-take-any-time",
        old="price <= self.credit and ",
        new="",
        breaks="one look takes as long as a hundred passes",
        killed_by=(_LOOKING + "test_a_look_that_takes_more_than_was_earned_waits",),
    ),
    _in_token_selection(
        name="looked-at-without-hope",
        old="threshold = (1.0 + _LOOK_GAIN) *",
        new="threshold = 0.0 *",
        breaks="sizes that cannot be the best are run again and again",
        killed_by=(_LOOKING + "test_a_size_that_could_not_be_the_best_is_never_looked_at",),
    ),
    Mutant(
        name="shrunk-for-room-without-a-word",
        path="specdec_core/scheduler/rows.py",
        old="row.shortened(max_len - end_len, _ROOM)",
        new="row.shortened(max_len - end_len, row.reason)",
        breaks="an operator looks for a K controller at fault where KV blocks are short",
        killed_by=(_CAUSES + "test_a_target_without_blocks_for_a_proposal_is_why",),
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
        name="a-time-that-has-passed-is-woken-for",
        path="specdec_core/scheduler/batch_builder.py",
        old="                replica.wake_at = NEXT_EVENT\n",
        new="",
        breaks="the pool is asked again and again while a shared device is busy",
        killed_by=(_SHARED + "test_no_time_to_wake_has_passed_while_a_device_is_busy",),
    ),
    Mutant(
        name="a-lease-is-one-step",
        path="specdec_core/speculation/goodput.py",
        old="self.draft.observe(*_drafting_size(lengths), seconds, cached)",
        new="self.draft.observe(len(lengths), len(lengths), seconds, cached)",
        breaks="one draft step is taken to last as long as the whole lease",
        killed_by=(
            _GOODPUT
            + "test_what_a_drafts_lease_takes_besides_its_steps_is_told_from_them[8-8.0-0.5]",
        ),
    ),
)
