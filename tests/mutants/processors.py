"""Defects of bans, bias, penalties, and of the log-probabilities that are reported."""

from tests.mutants.mutant import Mutant

_PROCESSORS = "specdec_core/sampling/logit_processors.py"
_RULES = "specdec_core/choice_rules.py"
_LOGPROBS = "specdec_core/sampling/token_logprobs.py"
_PROCESSOR_TESTS = "tests/sampling/test_logit_processors.py::"
_LOGPROB_TESTS = "tests/sampling/test_token_logprobs.py::"
_PROMPT_TESTS = "tests/equivalence/test_prompt_logprobs.py::"
_PROPOSAL = "tests/equivalence/test_processors.py::"

MUTANTS = (
    Mutant(
        name="history-one-token-short",
        path=_PROCESSORS,
        old="places_N[prompt_len:position].bincount",
        new="places_N[prompt_len : position - 1].bincount",
        breaks="penalties do not see the pending token",
        killed_by=(_PROCESSOR_TESTS + "test_a_pass_equals_the_reference_row_by_row",),
    ),
    Mutant(
        name="history-of-the-whole-proposal",
        path=_PROCESSORS,
        old="places_N[prompt_len:position].bincount",
        new="places_N[prompt_len:].bincount",
        breaks="position j sees the drafts behind it: other tokens than plain decoding",
        killed_by=(
            _PROPOSAL + "test_each_processor_gives_the_plain_ids_and_logprobs[3-frequency]",
        ),
    ),
    Mutant(
        name="presence-counts-the-prompt",
        path=_PROCESSORS,
        old="z_GU -= is_output_GU.to(z_GU.dtype) * params.presence_penalty",
        new="z_GU -= (is_output_GU | is_in_prompt_U).to(z_GU.dtype) * params.presence_penalty",
        breaks="ids of the prompt are penalised, as OpenAI's API does not",
        killed_by=(
            _PROCESSOR_TESTS + "test_repetition_counts_the_prompt_presence_and_frequency_do_not",
        ),
    ),
    Mutant(
        name="repetition-ignores-the-prompt",
        path=_PROCESSORS,
        old="torch.where(is_output_GU | is_in_prompt_U, repeated_GU, z_GU)",
        new="torch.where(is_output_GU, repeated_GU, z_GU)",
        breaks="the repetition penalty forgets the prompt",
        killed_by=(
            _PROCESSOR_TESTS + "test_repetition_counts_the_prompt_presence_and_frequency_do_not",
        ),
    ),
    Mutant(
        name="bias-lifts-a-ban",
        path=_PROCESSORS,
        old="    _ban(z_GV, [*_bad_word_ends(group), *_early_ends(group)])\n"
        "    if params.logit_bias:\n"
        "        _add_bias(z_GV, params.logit_bias)\n",
        new="    if params.logit_bias:\n"
        "        _add_bias(z_GV, params.logit_bias)\n"
        "    z_GV.nan_to_num_(neginf=-60.0)\n"
        "    _ban(z_GV, [*_bad_word_ends(group), *_early_ends(group)])\n",
        breaks="an id that is not allowed becomes possible",
        killed_by=(_PROCESSOR_TESTS + "test_bias_does_not_lift_a_ban",),
    ),
    Mutant(
        name="bias-behind-the-penalties",
        path=_PROCESSORS,
        old="    if params.logit_bias:\n"
        "        _add_bias(z_GV, params.logit_bias)\n"
        "    if _is_penalised(params):\n"
        "        _penalise(z_GV, group)\n",
        new="    if _is_penalised(params):\n"
        "        _penalise(z_GV, group)\n"
        "    if params.logit_bias:\n"
        "        _add_bias(z_GV, params.logit_bias)\n",
        breaks="the repetition penalty does not see the bias",
        killed_by=(_PROCESSOR_TESTS + "test_the_bias_is_added_before_the_penalties",),
    ),
    Mutant(
        name="min-tokens-counts-the-prompt",
        path=_PROCESSORS,
        old="if position - group.rules.prompt_len < group.rules.params.min_tokens:",
        new="if position < group.rules.params.min_tokens:",
        breaks="a long prompt may end at once in spite of min_tokens",
        killed_by=(_PROCESSOR_TESTS + "test_min_tokens_counts_emitted_tokens_alone",),
    ),
    Mutant(
        name="bad-word-begins-in-the-prompt",
        path=_PROCESSORS,
        old="is_emitted = start >= group.rules.prompt_len or not beginning",
        new="is_emitted = start >= 0 or not beginning",
        breaks="words that the prompt begins are banned, as vLLM does not",
        killed_by=(_PROCESSOR_TESTS + "test_a_bad_word_may_not_begin_in_the_prompt",),
    ),
    Mutant(
        name="bans-of-another-row",
        path=_PROCESSORS,
        old="_process_group(z_NV[group.first : group.first + len(group.positions)], group)",
        new="_process_group(z_NV[: len(group.positions)], group)",
        breaks="one request's rules change another's tokens",
        killed_by=(_PROCESSOR_TESTS + "test_a_row_does_not_depend_on_the_rows_around_it",),
    ),
    Mutant(
        name="callers-logits-changed",
        path=_PROCESSORS,
        old="    z_NV = z_NV.to(torch.float32, copy=True)\n",
        new="",
        breaks="reported log-probabilities are those of processed logits",
        killed_by=(_PROCESSOR_TESTS + "test_a_pass_equals_the_reference_row_by_row",),
    ),
    Mutant(
        name="history-not-sent-for-bad-words",
        path=_RULES,
        old="            or bool(params.bad_words)\n",
        new="",
        breaks="bad words of several ids are never found",
        killed_by=(
            _PROPOSAL + "test_each_processor_gives_the_plain_ids_and_logprobs[3-bad words]",
        ),
    ),
    Mutant(
        name="logprobs-over-the-padded-vocabulary",
        path=_LOGPROBS,
        old="found = _measure(_rows(logits[:, :vocab_size], asking),",
        new="found = _measure(_rows(logits, asking),",
        breaks="ids that do not exist take part in the probabilities",
        killed_by=(_LOGPROB_TESTS + "test_a_padded_vocabulary_changes_no_probability",),
    ),
    Mutant(
        name="logprobs-of-the-first-rows",
        path=_LOGPROBS,
        old="[tokens[i] for i in asking], asked)",
        new="[tokens[i] for i, _ in enumerate(asking)], asked)",
        breaks="a token is reported with the log-probability of another row's token",
        killed_by=(_LOGPROB_TESTS + "test_a_row_among_forty_has_the_bits_that_it_has_alone[1000]",),
    ),
    Mutant(
        name="choices-from-the-rows-of-the-prompt",
        path=_LOGPROBS,
        old="        start += share.num_rows\n",
        new="",
        breaks="a request that scores its prompt goes on behind the prompt's first tokens",
        killed_by=(_PROMPT_TESTS + "test_speculation_and_chunks_change_no_bit_of_them[exspec-8]",),
    ),
    Mutant(
        name="ties-of-the-top-in-any-order",
        path="specdec_core/sampling/top_k.py",
        old="    return rank.mul_(2**32).sub_(ids)\n",
        new="    return rank.mul_(2**32).add_(ids)\n",
        breaks="equally probable ids are listed in another order than by id",
        killed_by=(_LOGPROB_TESTS + "test_values_and_order_equal_the_reference",),
    ),
)
