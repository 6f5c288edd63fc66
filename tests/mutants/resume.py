"""Defects of answers that are resumed, in the pool and at the edge."""

from tests.mutants.mutant import CAMPAIGN, Mutant

_IN_POOL = "tests/scheduler/test_resume.py::"
_ANYWHERE = _IN_POOL + "test_a_wrong_id_at_any_place_ends_it_with_both_ids"
_AT_EDGE = "tests/deployments/ingress/test_client_resume.py::"
_CUT = _AT_EDGE + "test_what_two_connections_tell_is_what_one_would_have"
_HTTP = "tests/deployments/http/test_resume.py::"

MUTANTS = (
    Mutant(
        name="resumed-ids-are-trusted",
        path="specdec_core/scheduler/results.py",
        old="wrong = sequence.disagreement(tokens)\n",
        new="wrong = None if tokens else sequence.disagreement(tokens)\n",
        breaks="a client that brings back other ids hears an answer that contradicts them",
        killed_by=(CAMPAIGN, _ANYWHERE),
    ),
    Mutant(
        name="resumed-id-behind-a-chunk-is-trusted",
        path="specdec_core/scheduler/sequence.py",
        old="zip(self.unchecked(len(tokens)), tokens, strict=False)",
        new="zip(self.unchecked(len(tokens) - 1), tokens, strict=False)",
        breaks="of every pass the last id is not compared",
        killed_by=(CAMPAIGN, _ANYWHERE),
    ),
    Mutant(
        name="resumed-ids-proposed-again",
        path="specdec_core/scheduler/sequence.py",
        old="return self.request.resume_token_ids[self.num_emitted :][:most]",
        new="return self.request.resume_token_ids[:most]",
        breaks="who brings back more than a chunk of ids is told that they are wrong",
        killed_by=(CAMPAIGN, _IN_POOL + "test_resumed_at_every_place_it_ends_as_it_would_have"),
    ),
    Mutant(
        name="resumed-ids-in-front-of-streams",
        path="specdec_core/scheduler/rows.py",
        old="(len(row.proposal) if self.is_resuming else 0)",
        new="0",
        breaks="when an ingress dies, all its clients' answers are checked at once",
        killed_by=_IN_POOL + "test_it_counts_as_a_catch_up",  # of seeds 135 is the first
    ),
    Mutant(
        name="resumed-ids-beyond-the-chunk",
        path="specdec_core/scheduler/rows.py",
        old="proposal = proposal[: max(chunk - (end_len - base_len), 0)]",
        new="proposal = proposal[:chunk]",
        breaks="a row is nearly twice as wide as a prefill's",
        killed_by=_IN_POOL + "test_the_policy_neither_cuts_it_nor_learns_of_it",
    ),
    Mutant(
        name="resumed-ids-beyond-memory",
        path="specdec_core/scheduler/verification_budget.py",
        old="    room -= len(rows)\n",
        new="",
        breaks="a GPU runs out of memory when many clients resume",
        killed_by=_IN_POOL + "test_a_pass_chooses_no_more_than_memory_was_planned_for",
    ),
    Mutant(
        name="resumed-ids-count-as-drafted",
        path="specdec_core/scheduler/results.py",
        old="            num_drafted = num_accepted = 0  # nobody drafted them\n",
        new="",
        breaks="acceptance looks better than the drafts are",
        killed_by=_IN_POOL + "test_what_was_brought_back_counts_as_nobodys_draft",
    ),
    Mutant(
        name="resumed-passes-teach-the-policy",
        path="specdec_core/scheduler/scheduler.py",
        old="        if not open_.is_resuming and _NOT_READY",
        new="        if _NOT_READY",
        breaks="K follows what clients bring back",
        killed_by=_IN_POOL + "test_the_policy_neither_cuts_it_nor_learns_of_it",
    ),
    Mutant(
        name="ids-behind-a-stop-id",
        path="specdec_core/request.py",
        old="        if not self.stop_ids.isdisjoint(ids[:-1]):\n",
        new="        if False:\n",
        breaks="ids behind the end of an answer are taken without a word",
        killed_by=_IN_POOL + "test_ids_that_no_such_request_can_have_are_refused",
    ),
    Mutant(
        name="audit-checks-as-the-client-did",
        path="deployments/coordinator/audit.py",
        old="        resume_token_ids=(),\n",
        new="",
        breaks="the audit of a resumed request decodes nothing plainly",
        killed_by="tests/deployments/coordinator/test_audit_origin.py"
        "::test_a_replay_decodes_anew_what_its_client_had_brought_back",
    ),
    Mutant(
        name="parted-news-keeps-its-place",
        path="deployments/ingress/open_requests.py",
        old="            index=count,\n",
        new="",
        breaks="a resumed stream lacks the tokens that came in the same round as old ones",
        killed_by=(CAMPAIGN, _CUT),
    ),
    Mutant(
        name="told-twice",
        path="deployments/ingress/client_resume.py",
        old="            if piece.index < count:\n",
        new="            if piece.index < count - 1:\n",
        breaks="a resumed stream repeats a token",
        killed_by=_CUT,
    ),
    Mutant(
        name="calls-begin-at-the-cut",
        path="deployments/ingress/output.py",
        old="        if piece.told_text:\n",
        new="        if piece.told_text and self.num_calls < 0:\n",
        breaks="a tool call that was cut in two is told as text",
        killed_by=_CUT,
    ),
    Mutant(
        name="held-back-call-told-again",
        path="deployments/ingress/output.py",
        old="return found if is_known else found + rest",
        new="return found + rest",
        breaks="who brings back a whole answer is told its end again",
        killed_by=_CUT,
    ),
    Mutant(
        name="usage-begins-at-the-cut",
        path="deployments/api/http/responses.py",
        old="        choice.num_tokens = chunk.index + len(chunk.token_ids)\n        choice.stats",
        new="        choice.num_tokens += len(chunk.token_ids)\n        choice.stats",
        breaks="a whole answer counts what was brought back twice",
        killed_by=_HTTP + "test_it_goes_on_behind_every_token",
    ),
    Mutant(
        name="echo-told-again",
        path="deployments/api/http/responses.py",
        old="self.echo.has_logprobs or self.generation.request.resume_token_ids",
        new="self.echo.has_logprobs",
        breaks="a resumed stream repeats the prompt",
        killed_by=_HTTP + "test_the_echo_is_told_once",
    ),
    Mutant(
        name="seed-is-drawn-anew",
        path="deployments/ingress/client_resume.py",
        old="begun if own is None else own})",
        new="own})",
        breaks="the seed of the first chunk is not used",
        killed_by=_AT_EDGE + "test_the_choices_have_ids_and_seeds_of_their_own",
    ),
)
