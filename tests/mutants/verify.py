"""Defects of the judges themselves: the audit's comparison, its gap, and the service's replays."""

from functools import partial

from tests.mutants.mutant import Mutant

_COMPARE_TESTS = "tests/deployments/verify/test_compare.py::"
_GAP_TESTS = "tests/deployments/verify/test_gap.py::"
_AUDIT_TESTS = "tests/deployments/verify/test_audit.py::"
_in_compare = partial(Mutant, path="deployments/cli/verify/compare.py")
_in_gap = partial(Mutant, path="deployments/cli/verify/gap.py")
_in_audit = partial(Mutant, path="deployments/coordinator/audit.py")

MUTANTS = (
    _in_compare(
        name="longer-answer-counts-as-equal",
        old="is_equal = position == len(expected.token_ids) == len(got.token_ids)",
        new="is_equal = position == len(expected.token_ids)",
        breaks="an answer that runs on behind the reference's end passes the audit",
        killed_by=_COMPARE_TESTS + "test_the_first_difference_is_the_one_reported",
    ),
    _in_compare(
        name="shorter-answer-compared-to-its-end",
        old="zip_longest(expected.token_ids, got.token_ids)",
        new="zip(expected.token_ids, got.token_ids, strict=False)",
        breaks="a difference is reported, and its gap judged, at the wrong position",
        killed_by=_COMPARE_TESTS + "test_the_first_difference_is_the_one_reported",
    ),
    _in_compare(
        name="finish-reason-not-compared",
        old="if is_equal and expected.finish_reason is got.finish_reason:",
        new="if is_equal:",
        breaks="an answer that ended for another reason passes the audit",
        killed_by=_COMPARE_TESTS + "test_the_first_difference_is_the_one_reported",
    ),
    _in_compare(
        name="last-difference-reported",
        old="(index for index, (a, b) in enumerate(pairs) if a != b), len(expected.token_ids)",
        new="(index for index, (a, b) in reversed([*enumerate(pairs)]) if a != b),\n"
        "        len(expected.token_ids),",
        breaks="the gap is judged behind tokens that differ already",
        killed_by=_COMPARE_TESTS + "test_the_first_difference_is_the_one_reported",
    ),
    _in_compare(
        name="logprobs-compared-approximately",
        old="num_different=sum(a.logprobs != b.logprobs for a, b in compared)",
        new="num_different=sum(_largest_change(a, b) > 1e-6 for a, b in compared)",
        breaks="exact mode's log-probabilities may differ in their last bits",
        killed_by=_COMPARE_TESTS + "test_one_changed_bit_of_a_logprob_is_a_difference",
    ),
    _in_compare(
        name="missing-logprobs-not-counted",
        old="num_missing=sum(len(b.logprobs) != len(b.token_ids) for _, b in compared)",
        new="num_missing=sum(len(b.logprobs) > len(b.token_ids) for _, b in compared)",
        breaks="an algorithm that drops the log-probabilities passes the audit",
        killed_by=_COMPARE_TESTS + "test_missing_logprobs_are_counted",
    ),
    _in_gap(
        name="any-gap-is-rounding",
        old="is_rounding = 0 <= chosen <= 2 * logit_change or any(",
        new="is_rounding = 0 <= chosen <= 20 * logit_change or any(",
        breaks="fast mode excuses real errors as rounding",
        killed_by=_GAP_TESTS + "test_a_gap_of_twice_the_change_is_rounding_and_more_is_not",
    ),
    _in_gap(
        name="gap-of-the-top-two-for-any-id",
        old="chosen = float(scores[difference.expected] - scores[difference.got])",
        new="chosen = best - second",
        breaks="any wrong token is excused where the two best ids are close",
        killed_by=_GAP_TESTS + "test_another_id_than_the_second_best_needs_its_own_gap",
    ),
    _in_gap(
        name="gap-one-token-early",
        old="passes = _plain_passes(model, decoded, difference.position + 1)",
        new="passes = _plain_passes(model, decoded, max(difference.position, 1))",
        breaks="the gap of the position before is judged",
        killed_by=_GAP_TESTS + "test_the_gap_is_that_behind_the_common_tokens",
    ),
    _in_gap(
        name="gap-without-the-noise",
        old="return processed + params.temperature * gumbel(keys, ids)[0]",
        new="return processed + 0.0 * gumbel(keys, ids)[0]",
        breaks="a sampled token's gap is judged by the greedy scores",
        killed_by=_GAP_TESTS + "test_noise_is_part_of_the_gap_of_a_sampled_token",
    ),
    _in_gap(
        name="ended-answer-is-rounding",
        old="return Gap(best - second, None, False)",
        new="return Gap(best - second, None, best - second <= 2 * logit_change)",
        breaks="an answer that ended too early is excused",
        killed_by=_GAP_TESTS + "test_an_answer_that_ended_elsewhere_is_never_rounding",
    ),
    _in_audit(
        name="replay-speculates",
        old="        speculation_enabled=False,\n",
        new="        speculation_enabled=record.request.speculation_enabled,\n",
        breaks="the service's audit compares speculation with itself",
        killed_by=_AUDIT_TESTS
        + "test_a_replay_is_the_request_without_speculation_under_another_id",
    ),
    _in_audit(
        name="replay-that-ends-early-is-equal",
        old="        replayed.append(None)\n",
        new="        replayed.append(expected[-1] if expected else None)\n",
        breaks="an answer that ran on behind its end is not found",
        killed_by=_AUDIT_TESTS + "test_a_replay_that_ends_too_early_is_a_difference",
    ),
    _in_audit(
        name="divergence-not-counted",
        old="self.counts.diverged[origin.numerics] += divergence is not None",
        new="self.counts.diverged[origin.numerics] += divergence is not None and (\n"
        "            divergence.replayed_id is None\n"
        "        )",
        breaks="the counter that operators watch stays at 0",
        killed_by=_AUDIT_TESTS + "test_the_first_difference_is_named_and_ends_the_replay",
    ),
    _in_audit(
        name="earlier-attempt-not-compared",
        old="_Record(request, list(request.emitted_token_ids))",
        new="_Record(request, [])",
        breaks="a resumed request's replay is compared with tokens at other places",
        killed_by=_AUDIT_TESTS + "test_what_an_earlier_attempt_emitted_is_compared_too",
    ),
)
