"""Defects of the coupled choice: noise, ties, filters."""

from tests.mutants.mutant import Mutant

_NOISE = "specdec_core/sampling/gumbel.py"
_SEEDS = "specdec_core/seeds.py"
_CHOICE = "specdec_core/sampling/sampler.py"
_CANDIDATES = "specdec_core/sampling/filters.py"
_NOISE_TESTS = "tests/sampling/test_noise.py::"
_CHOICE_TESTS = "tests/sampling/test_choose.py::"
_REFERENCE = _CHOICE_TESTS + "test_choices_equal_the_reference[PyTorch-97]"

MUTANTS = (
    Mutant(
        name="key-of-the-position-before",
        path=_SEEDS,
        old="_GOLDEN64 * (counter + 1))",
        new="_GOLDEN64 * counter)",
        breaks="every seeded output changes with the version",
        killed_by=(_NOISE_TESTS + "test_the_mixed_integer_is_pinned",),
    ),
    Mutant(
        name="half-of-the-key-unused",
        path=_NOISE,
        old="    x ^= high_N1\n",
        new="",
        breaks="positions whose low halves are equal share their noise",
        killed_by=(_NOISE_TESTS + "test_hash_integers_equal_the_reference_bit_for_bit",),
    ),
    Mutant(
        name="key-cut-to-its-low-half",
        path=_NOISE,
        old="_as_int32(h >> 32)",
        new="_as_int32(h >> 31)",
        breaks="the wrong bits of the key: other noise than on another device",
        killed_by=(_NOISE_TESTS + "test_hash_integers_equal_the_reference_bit_for_bit",),
    ),
    Mutant(
        name="sign-shifted-in",
        path=_NOISE,
        old="x ^= (x >> 13).bitwise_and_(0x7FFFF)",
        new="x ^= x >> 13",
        breaks="negative hashes mix differently where shifts are unsigned",
        killed_by=(_NOISE_TESTS + "test_hash_integers_equal_the_reference_bit_for_bit",),
    ),
    Mutant(
        name="noise-of-zero-bits-infinite",
        path=_NOISE,
        old="h31.float().add_(0.5).mul_(2.0**-31)",
        new="h31.float().mul_(2.0**-31)",
        breaks="one id in 2^31 wins whatever its probability",
        killed_by=(_NOISE_TESTS + "test_noise_of_extreme_bits",),
    ),
    Mutant(
        name="uniform-rounds-to-one",
        path=_NOISE,
        old=".clamp_(max=_LARGEST_UNIFORM)",
        new=".clamp_(max=1.0)",
        breaks="-inf noise: an id of probability near 1 is not chosen",
        killed_by=(_NOISE_TESTS + "test_noise_of_extreme_bits",),
    ),
    Mutant(
        name="noise-of-the-other-tail",
        path=_NOISE,
        old="return w.neg_().log1p_().neg_().log_().neg_()",
        new="return w.log_().neg_().log_().neg_()",
        breaks="the law holds but the grid is coarse where the winners are: ties in 0.3 %",
        killed_by=(_NOISE_TESTS + "test_noise_of_extreme_bits",),
    ),
    Mutant(
        name="derived-seed-too-large",
        path=_SEEDS,
        old="mix64(seed, choice) >> 1",
        new="mix64(seed, choice)",
        breaks="half of the choices of n > 1 are refused for their seed",
        killed_by=(
            _NOISE_TESTS + "test_choice_zero_keeps_the_seed_and_the_others_are_valid_seeds",
        ),
    ),
    Mutant(
        name="choice-zero-derived",
        path=_SEEDS,
        old="return seed if choice == 0 else",
        new="return seed if choice < 0 else",
        breaks="n = 1 with a seed and the first of n = 2 with it differ",
        killed_by=(
            _NOISE_TESTS + "test_choice_zero_keeps_the_seed_and_the_others_are_valid_seeds",
        ),
    ),
    Mutant(
        name="padded-vocabulary-chosen",
        path=_CHOICE,
        old="z_NV = process(logits[:, :vocab_size], rows)",
        new="z_NV = process(logits, rows)",
        breaks="ids that the tokenizer does not have are emitted",
        killed_by=(_CHOICE_TESTS + "test_ids_beyond_the_vocabulary_are_never_chosen",),
    ),
    Mutant(
        name="noise-ignores-the-position",
        path=_CHOICE,
        old="noise_keys([(row.rules.params.seed, row.position) for row in rows]",
        new="noise_keys([(row.rules.params.seed, 0) for row in rows]",
        breaks="every token of a request has the same noise",
        killed_by=(_REFERENCE,),
    ),
    Mutant(
        name="ties-to-the-first-candidate",
        path=_CHOICE,
        old="lowest_N1 = ids_NC.masked_fill(~is_best_NC, torch.iinfo(ids_NC.dtype).max)\n",
        new="lowest_N1 = ids_NC.masked_fill(~is_best_NC, -1).amax(dim=-1, keepdim=True)\n",
        breaks="equal scores go to the highest id: not the argmax of other devices",
        killed_by=(_CHOICE_TESTS + "test_equal_scores_go_to_the_lowest_id",),
    ),
    Mutant(
        name="nothing-left-to-choose-overlooked",
        path=_CHOICE,
        old="return decided_N1.where(max_N1.isfinite(), NO_CHOICE).squeeze(1)",
        new="return decided_N1.where(~max_N1.isnan(), NO_CHOICE).squeeze(1)",
        breaks="a row whose every id is banned emits id 0",
        killed_by=(_CHOICE_TESTS + "test_a_row_without_a_finite_greatest_logit_fails_alone",),
    ),
    Mutant(
        name="unlisted-ids-never-win",
        path=_CHOICE,
        old="limit_N1 = first.greatest_beyond + temperature_N1 * LARGEST_NOISE",
        new="limit_N1 = first.greatest_beyond + temperature_N1",
        breaks="an improbable id with great noise is not found: the tail of the law is cut",
        killed_by=(
            _CHOICE_TESTS + "test_flat_and_peaked_rows_of_a_large_vocabulary_equal_the_reference",
        ),
    ),
    Mutant(
        name="columns-bounded-without-their-logits",
        path=_CHOICE,
        old="is_decided_N1 = (best_N1 > limits.values[:, count:]).all(dim=-1, keepdim=True)",
        new="is_decided_N1 = (best_N1 > -math.inf).all(dim=-1, keepdim=True)",
        breaks="the best id of the columns looked at is taken for the best of all",
        killed_by=(_CHOICE_TESTS + "test_the_best_id_may_lie_in_a_column_that_promises_little",),
    ),
    Mutant(
        name="top-p-excludes-the-id-that-reaches-it",
        path=_CANDIDATES,
        old="before_NC = mass_NC.cumsum(dim=-1).sub_(mass_NC).double()",
        new="before_NC = mass_NC.cumsum(dim=-1).double()",
        breaks="the mass of the kept ids stays below top_p",
        killed_by=(_REFERENCE,),
    ),
    Mutant(
        name="min-p-of-the-logits",
        path=_CANDIDATES,
        old="return math.log(min_p) if min_p > 0.0 else -math.inf",
        new="return -1.0 / min_p if min_p > 0.0 else -math.inf",
        breaks="min_p keeps other ids than those min_p times as probable as the best",
        killed_by=(_REFERENCE,),
    ),
)
