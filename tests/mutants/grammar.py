"""Defects of structured output, of drafts that stop early, and of several choices."""

from functools import partial

from tests.mutants.mutant import Mutant

_ROUND = "specdec_core/worker/round.py"
_LIMITS = "specdec_core/speculation/registry.py"
_LEDGER = "deployments/coordinator/quotas.py"
_EQUIVALENCE = "tests/equivalence/test_structured_output.py::"
_COMPILED = "tests/deployments/text/test_structured_output.py::"
_WALKS = "tests/deployments/text/test_grammar_walks.py::"
_LEDGER_TESTS = "tests/deployments/coordinator/test_client_ledger.py::"
_KEY_LIMITS = "tests/deployments/cells/test_key_limits.py::"
_ROUND_TESTS = "tests/core/test_speculative_round.py::"
_in_logit_processors = partial(Mutant, path="specdec_core/sampling/logit_processors.py")
_in_grammars = partial(Mutant, path="deployments/text/grammars.py")

MUTANTS = (
    _in_logit_processors(
        name="grammar-not-asked",
        old='    LogitProcessor(("grammar",), _keep_grammatical),\n',
        new="",
        breaks="structured output is free text",
        killed_by=_EQUIVALENCE + "test_plain_answers_conform",
    ),
    _in_logit_processors(
        name="grammar-at-the-first-position-only",
        old="grammar.allowed(group.history[prompt_len:position])",
        new="grammar.allowed(group.history[prompt_len : group.positions[0]])",
        breaks="drafted positions are masked as the first one of their round",
        killed_by=_EQUIVALENCE + "test_speculation_changes_no_structured_answer",
    ),
    _in_logit_processors(
        name="grammar-reads-the-prompt",
        old="grammar.allowed(group.history[prompt_len:position])",
        new="grammar.allowed(group.history[:position])",
        breaks="the prompt counts as output: nothing is masked",
        killed_by=_EQUIVALENCE + "test_plain_answers_conform",
    ),
    _in_grammars(
        name="matcher-never-rolled-back",
        old="        if common < len(self._consumed):\n",
        new="        if False:\n",
        breaks="a rejected draft stays in the grammar's state",
        killed_by=_COMPILED + "test_an_answer_depends_on_the_output_alone",
    ),
    _in_grammars(
        name="shared-matcher-decides",
        old="            lambda: self._fresh(spec, has_full_limits=False).walk(),\n"
        "            lambda: self._fresh(spec, has_full_limits=True).walk(),\n",
        new="",
        breaks="a grammar is refused after some number of answers",
        killed_by=_WALKS + "test_a_refusal_depends_on_the_output_alone",
    ),
    _in_grammars(
        name="limit-taken-for-a-mistake",
        old="                self._compute()  # tells a token that does not conform from a limit\n",
        new="",
        breaks="an output counts as wrong because another one has met a limit",
        killed_by=_WALKS + "test_a_refusal_depends_on_the_output_alone",
    ),
    Mutant(
        name="grammar-not-waited-for",
        path="specdec_core/worker/replica.py",
        old="truncated[index] = RowResult(rows[index].sequence_id, RowStatus.NOT_READY)",
        new="pass",
        breaks="a row whose grammar is being compiled fails",
        killed_by="tests/core/test_replica_grammars.py::"
        "test_a_row_whose_grammar_is_not_ready_is_left_out_and_can_be_leased_again",
    ),
    Mutant(
        name="unsure-draft-is-proposed",
        path=_ROUND,
        old="confidence_N1 >= min_confidence",
        new="confidence_N1 > 0.0",
        breaks="min_confidence has no effect",
        killed_by=_ROUND_TESTS + "test_a_draft_stops_before_the_first_token_that_it_is_not_sure_of",
    ),
    Mutant(
        name="confidence-at-the-border-refused",
        path=_ROUND,
        old="confidence_N1 >= min_confidence",
        new="confidence_N1 > min_confidence",
        breaks="a threshold of exactly a token's probability drops it",
        killed_by=_ROUND_TESTS + "test_a_token_of_exactly_the_least_confidence_is_proposed",
    ),
    Mutant(
        name="method-of-a-request-ignored",
        path=_LIMITS,
        old="return request.spec_method or config.method",
        new="return config.method",
        breaks="speculative.method has no effect",
        killed_by="tests/equivalence/test_fakes.py::test_every_request_may_name_who_drafts_for_it",
    ),
    Mutant(
        name="choices-share-one-seed",
        path="deployments/ingress/generation.py",
        old="derive_seed(params.seed, choice)",
        new="params.seed",
        breaks="all choices of n are the same text",
        killed_by="tests/deployments/http/test_choices.py::"
        "test_n_choices_stand_in_order_and_each_has_its_own_seed",
    ),
    Mutant(
        name="key-limit-one-too-many",
        path=_LEDGER,
        old="usage.num_running >= most",
        new="usage.num_running > most",
        breaks="a key runs one request more than it may",
        killed_by=_LEDGER_TESTS + "test_no_more_run_than_the_limit_and_an_end_makes_room",
    ),
    Mutant(
        name="key-limit-in-every-cell",
        path="deployments/wire/cell_ids.py",
        old="return whole + (order_of(client, num_cells).index(cell) < rest)",
        new="return limit",
        breaks="a key runs as many requests in each of several cells as in all together",
        killed_by=_KEY_LIMITS + "test_the_shares_of_a_limit_are_even_and_add_up_to_it",
    ),
    Mutant(
        name="key-refused-by-one-cell",
        path="deployments/ingress/cells/router.py",
        old="if place not in refusals and self._cells[place].has_targets:",
        new="if False:",
        breaks="a key is refused where another cell has room for it",
        killed_by=_KEY_LIMITS + "test_a_request_that_one_cell_has_no_share_for_begins_in_another",
    ),
    Mutant(
        name="ended-request-keeps-its-place",
        path=_LEDGER,
        old="        usage.num_running -= 1\n",
        new="        pass\n",
        breaks="a key's limit fills up for good",
        killed_by=_LEDGER_TESTS + "test_the_count_is_that_of_the_live_requests",
    ),
)
