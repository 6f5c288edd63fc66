"""Defects of verification and of the end of a request: what one round commits and emits."""

from functools import partial

from tests.mutants.mutant import Mutant

_VERIFICATION = "specdec_core/worker/round.py"
_VERIFICATION_TESTS = "tests/core/test_verification.py::"
_REQUEST_TESTS = "tests/core/test_request.py::"
_in_request = partial(Mutant, path="specdec_core/request.py")

MUTANTS = (
    Mutant(
        name="match-after-a-mismatch-accepted",
        path=_VERIFICATION,
        old="    while num_accepted < len(proposal) and "
        "proposal[num_accepted] == choices[num_accepted]:\n"
        "        num_accepted += 1\n",
        new="    num_accepted = sum(a == b for a, b in zip(proposal, choices, strict=False))\n",
        breaks="tokens that were scored behind a rejected one are emitted",
        killed_by=_VERIFICATION_TESTS + "test_a_match_after_a_mismatch_is_not_accepted",
    ),
    _in_request(
        name="tokens-behind-the-end-id-emitted",
        old="return tokens[:count], FinishReason.STOP",
        new="return tokens, FinishReason.STOP",
        breaks="an accepted end id is followed by one more token",
        killed_by=_REQUEST_TESTS + "test_tokens_behind_an_accepted_stop_id_are_dropped",
    ),
    _in_request(
        name="end-id-not-emitted",
        old="return tokens[:count], FinishReason.STOP",
        new="return tokens[: count - 1], FinishReason.STOP",
        breaks="the ids differ from generate()'s, which end with the end id",
        killed_by=_REQUEST_TESTS + "test_tokens_behind_an_accepted_stop_id_are_dropped",
    ),
    _in_request(
        name="end-id-searched-behind-the-budget",
        old="enumerate(tokens[:budget], start=1)",
        new="enumerate(tokens, start=1)",
        breaks="more than max_tokens are emitted when a round overshoots",
        killed_by=_REQUEST_TESTS + "test_a_stop_id_behind_the_budget_does_not_count",
    ),
    _in_request(
        name="budget-reached-but-not-ended",
        old="if len(tokens) >= budget:",
        new="if len(tokens) > budget:",
        breaks="one more pass and an empty event at the end of each request",
        killed_by=_REQUEST_TESTS + "test_a_round_that_just_uses_up_the_budget_ends_the_request",
    ),
    _in_request(
        name="budget-overshot",
        old="return tokens[:budget], FinishReason.LENGTH",
        new="return tokens, FinishReason.LENGTH",
        breaks="up to K more than max_tokens are emitted",
        killed_by=_REQUEST_TESTS + "test_the_budget_cuts_a_round_that_commits_more",
    ),
    _in_request(
        name="only-one-end-id-honoured",
        old="return ends.union(self.params.stop_token_ids)",
        new="return frozenset(sorted(ends)[:1]).union(self.params.stop_token_ids)",
        breaks="a model whose generation config lists several end ids does not stop",
        killed_by=_REQUEST_TESTS + "test_all_end_ids_of_the_model_and_of_the_request_end_it",
    ),
    _in_request(
        name="ignore-eos-drops-the-requests-own-stops",
        old="return ends.union(self.params.stop_token_ids)",
        new="return ends if self.params.ignore_eos else ends.union(self.params.stop_token_ids)",
        breaks="stop_token_ids have no effect together with ignore_eos",
        killed_by=_REQUEST_TESTS + "test_ignore_eos_drops_the_models_ids_but_not_the_requests",
    ),
    _in_request(
        name="acceptance-length-without-the-next-token",
        old="return 1.0 + self.num_accepted / rounds if rounds else 0.0",
        new="return self.num_accepted / rounds if rounds else 0.0",
        breaks="the reported acceptance length is one too small",
        killed_by=_REQUEST_TESTS + "test_acceptance_length_counts_the_next_token",
    ),
    _in_request(
        name="acceptance-length-over-plain-rounds",
        old="rounds = self.num_proposed_rounds\n",
        new="rounds = self.num_rounds\n",
        breaks="rounds without a proposal lower the acceptance length",
        killed_by=_REQUEST_TESTS + "test_acceptance_length_counts_the_next_token",
    ),
)
