"""Defects of the choice that our kernels make."""

from functools import partial

from tests.mutants.mutant import Mutant

_NATIVE = "specdec_core/sampling/cpu.py"
_CHOICE_TESTS = "tests/sampling/test_choose.py::"
_KERNEL_TESTS = "tests/sampling/test_native_choice.py::"
_PENALTIES = "tests/sampling/test_logit_processors.py::test_a_pass_equals_the_reference_row_by_row"
_REFERENCE = _CHOICE_TESTS + "test_choices_equal_the_reference[kernels-97]"
_LIKE_A_MODEL = _KERNEL_TESTS + "test_rows_like_a_models_are_decided_and_right"
_in_sampler_c = partial(Mutant, path="specdec_core/kernels/csrc/sampler.c")

MUTANTS = (
    _in_sampler_c(
        name="native-ties-to-the-last-block",
        old="        if (greatest > most) most",
        new="        if (greatest >= most) most",
        breaks="equal logits go to a higher id than on other devices",
        killed_by=_CHOICE_TESTS + "test_ties_go_to_the_lowest_id_in_a_greedy_row[kernels]",
    ),
    _in_sampler_c(
        name="native-zeros-told-apart",
        old="        greatest += greatest == -1;\n",
        new="",
        breaks="of equal logits a zero without a sign wins over an earlier one with it",
        killed_by=_KERNEL_TESTS + "test_zeros_of_both_signs_are_equal",
    ),
    _in_sampler_c(
        name="native-negative-no-number-overlooked",
        old=" || least < ~INFINITE_KEY)",
        new=")",
        breaks="a row that the model has spoilt goes on, if it is greedy",
        killed_by=_KERNEL_TESTS + "test_one_bad_number_fails_its_row",
    ),
    _in_sampler_c(
        name="native-reads-one-id-too-many",
        old="z[i] = first + i >= num_ids ? -INFINITY",
        new="z[i] = first + i > num_ids ? -INFINITY",
        breaks="an id that the tokenizer does not have is emitted",
        killed_by=_CHOICE_TESTS + "test_ids_beyond_the_vocabulary_are_never_chosen",
    ),
    _in_sampler_c(
        name="native-no-number-overlooked",
        old="    return isfinite(max) && !any_of(is_nan);",
        new="    return isfinite(max);",
        breaks="a row that the model has spoilt goes on",
        killed_by=_KERNEL_TESTS + "test_one_bad_number_fails_its_row",
    ),
    _in_sampler_c(
        name="native-half-of-the-key-unused",
        old="    x ^= l->key_high;\n",
        new="",
        breaks="other noise than on another device",
        killed_by=_REFERENCE,
    ),
    _in_sampler_c(
        name="native-noise-of-the-next-position",
        old="golden * (counter + 1));",
        new="golden * (counter + 2));",
        breaks="other noise than on another device",
        killed_by=_REFERENCE,
    ),
    _in_sampler_c(
        name="native-noise-bounded-too-low",
        old="best->bar = below(low - t * (158.0 * LOG_2",
        new="best->bar = below(low - t * (157.0 * LOG_2",
        breaks="an id whose noise lifts it to the first place is not looked at",
        killed_by=_LIKE_A_MODEL,
    ),
    _in_sampler_c(
        name="native-blocks-skipped-too-soon",
        old="float reach = l->temperature * (LARGEST_NOISE + 0x1p-12f);",
        new="float reach = l->temperature * 4.0f;",
        breaks="an improbable id with great noise is not found: the tail of the law is cut",
        killed_by=_LIKE_A_MODEL,
    ),
    _in_sampler_c(
        name="native-close-calls-decided",
        old="return best.low > best.rival ? best.id : UNDECIDED;",
        new="return best.id;",
        breaks="scores that float32 rounds to one are told apart here and nowhere else",
        killed_by=(
            _CHOICE_TESTS + "test_equal_scores_go_to_the_lowest_id[kernels]",
            _KERNEL_TESTS + "test_what_is_too_close_to_call_is_left_to_pytorch",
        ),
    ),
    _in_sampler_c(
        name="native-rival-forgotten",
        old="    best->rival = fmax(best->rival, best->high);\n",
        new="",
        breaks="an id that was the best and ties with the new best is no rival any more",
        killed_by=_KERNEL_TESTS + "test_what_is_too_close_to_call_is_left_to_pytorch",
    ),
    _in_sampler_c(
        name="native-close-cuts-decided",
        old="< row->top_p * most) return UNDECIDED;",
        new="< row->top_p * most) return id;",
        breaks="an id right behind the cut of top-p is chosen",
        killed_by=_KERNEL_TESTS + "test_pytorch_decides_what_the_kernels_leave",
    ),
    _in_sampler_c(
        name="native-cut-mass-over-all-ids",
        old="        Mass mass = mass_of(l, kept, open);",
        new="        Mass mass = mass_of(l, (Prefix){-INFINITY, -INFINITY, 0}, open);",
        breaks="top-p takes its share of what top-k and min-p have dropped as well",
        killed_by=_CHOICE_TESTS + "test_choices_equal_the_reference[kernels-1000]",
    ),
    _in_sampler_c(
        name="native-tail-of-top-p-cut-too-soon",
        old="log((1.0 - top_p) / (double)l->num_ids)",
        new="log(1.0 - top_p)",
        breaks="ids inside the nucleus are never chosen where it is wide",
        killed_by=_CHOICE_TESTS
        + "test_flat_and_peaked_rows_of_a_large_vocabulary_equal_the_reference",
    ),
    _in_sampler_c(
        name="native-top-k-keeps-later-ties",
        old="left -= d >= prefix.at && d < prefix.above;",
        new="left -= d >= prefix.at;",
        breaks="of ids that tie at the end of top-k too few are kept",
        killed_by=_KERNEL_TESTS + "test_top_k_may_end_among_ties_before_or_behind_the_leaders",
    ),
    _in_sampler_c(
        name="native-min-p-ignored",
        old="    return no_less(prefix, least_reaching(row->min_x, l->temperature, 0));",
        new="    return prefix;",
        breaks="min_p keeps every id",
        killed_by=_REFERENCE,
    ),
    _in_sampler_c(
        name="native-penalties-count-the-prompt",
        old="for (int64_t i = p->prompt_len; i < position; i++)",
        new="for (int64_t i = 0; i < position; i++)",
        breaks="frequency and presence penalties fall on ids that were never emitted",
        killed_by=_PENALTIES,
    ),
    _in_sampler_c(
        name="native-penalties-see-later-drafts",
        old="int64_t position = p->positions[j];",
        new="int64_t position = p->positions[p->num_rows - 1];",
        breaks="a penalised request depends on what was drafted",
        killed_by=_PENALTIES,
    ),
    Mutant(
        name="native-rows-without-their-stride",
        path=_NATIVE,
        old="z_NV.stride(0) * z_NV.element_size()",
        new="z_NV.shape[1] * z_NV.element_size()",
        breaks="rows of a padded vocabulary are read from the wrong place",
        killed_by=_KERNEL_TESTS + "test_rows_may_lie_apart_upon_each_other_or_scattered",
    ),
    Mutant(
        name="native-eager-not-heeded",
        path="specdec_core/loading/loader.py",
        old='if not enforce_eager and weights.device.type == "cpu":',
        new='if weights.device.type == "cpu":',
        breaks="--enforce-eager starts a compiler all the same",
        killed_by=_KERNEL_TESTS
        + "test_a_model_that_is_loaded_brings_the_kernels_unless_they_are_refused",
    ),
)
