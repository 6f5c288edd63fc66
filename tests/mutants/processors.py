"""Defects of bans, bias, penalties, and of the log-probabilities that are reported."""

from functools import partial

from tests.mutants.mutant import Mutant

_PARAMS = "specdec_core/sampling_params.py"
_LOGPROBS = "specdec_core/sampling/token_logprobs.py"
_PROCESSOR_TESTS = "tests/sampling/test_logit_processors.py::"
_RULES_TESTS = "tests/sampling/test_choice_rules.py::"
_LOGPROB_TESTS = "tests/sampling/test_token_logprobs.py::"
_PROMPT_TESTS = "tests/equivalence/test_prompt_logprobs.py::"
_PROPOSAL = "tests/equivalence/test_processors.py::"
_in_logit_processors = partial(Mutant, path="specdec_core/sampling/logit_processors.py")

MUTANTS = (
    _in_logit_processors(
        name="history-one-token-short",
        old="index_N[prompt_len:position].bincount",
        new="index_N[prompt_len : position - 1].bincount",
        breaks="penalties do not see the pending token",
        killed_by=_PROCESSOR_TESTS + "test_a_pass_equals_the_reference_row_by_row",
    ),
    _in_logit_processors(
        name="history-of-the-whole-proposal",
        old="index_N[prompt_len:position].bincount",
        new="index_N[prompt_len:].bincount",
        breaks="position j sees the drafts behind it: other tokens than plain decoding",
        killed_by=_PROPOSAL + "test_each_processor_gives_the_plain_ids_and_logprobs[3-frequency]",
    ),
    _in_logit_processors(
        name="bans-of-another-row",
        old="z_NV[group.first : group.first + len(group.positions)]",
        new="z_NV[: len(group.positions)]",
        breaks="one request's rules change another's tokens",
        killed_by=_PROCESSOR_TESTS + "test_a_row_does_not_depend_on_the_rows_around_it",
    ),
    _in_logit_processors(
        name="callers-logits-changed",
        old="    z_NV = z_NV.to(torch.float32, copy=True)\n",
        new="",
        breaks="reported log-probabilities are those of processed logits",
        killed_by=_PROCESSOR_TESTS + "test_a_pass_equals_the_reference_row_by_row",
    ),
    Mutant(
        name="history-not-sent-for-bad-words",
        path=_PARAMS,
        old='"bad_word_ids",\n        effect=Effect.HISTORY',
        new='"bad_word_ids",\n        effect=Effect.LOGITS',
        breaks="bad words of several ids are never found",
        killed_by=_RULES_TESTS + "test_whatever_looks_at_ids_needs_them[bad_words]",
    ),
    Mutant(
        name="choices-from-the-rows-of-the-prompt",
        path=_LOGPROBS,
        old="        start += share.num_rows\n",
        new="",
        breaks="a request that scores its prompt goes on behind the prompt's first tokens",
        killed_by=_PROMPT_TESTS + "test_speculation_and_chunks_change_no_bit_of_them[exspec-8]",
    ),
    Mutant(
        name="ties-of-the-top-in-any-order",
        path="specdec_core/sampling/top_k.py",
        old="    return rank.mul_(2**32).sub_(ids)\n",
        new="    return rank.mul_(2**32).add_(ids)\n",
        breaks="equally probable ids are listed in another order than by id",
        killed_by=_LOGPROB_TESTS + "test_values_and_order_equal_the_reference",
    ),
)
