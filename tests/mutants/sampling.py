"""Defects of the coupled choice: noise, ties, filters."""

from tests.mutants.mutant import Mutant

_NOISE = "specdec_core/sampling/gumbel.py"
_CHOICE = "specdec_core/sampling/sampler.py"
_NOISE_TESTS = "tests/sampling/test_noise.py::"
_CHOICE_TESTS = "tests/sampling/test_choose.py::"

MUTANTS = (
    Mutant(
        name="half-of-the-key-unused",
        path=_NOISE,
        old="    x ^= high_N1\n",
        new="",
        breaks="positions whose low halves are equal share their noise",
        killed_by=_NOISE_TESTS + "test_hash_integers_equal_the_reference_bit_for_bit",
    ),
    Mutant(
        name="unlisted-ids-never-win",
        path=_CHOICE,
        old="limit_N1 = first.greatest_beyond + temperature_N1 * LARGEST_NOISE",
        new="limit_N1 = first.greatest_beyond + temperature_N1",
        breaks="an improbable id with great noise is not found: the tail of the law is cut",
        killed_by=_CHOICE_TESTS
        + "test_flat_and_peaked_rows_of_a_large_vocabulary_equal_the_reference",
    ),
)
