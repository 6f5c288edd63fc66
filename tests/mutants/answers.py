"""Defects of what is read from answers and told of them."""

from tests.mutants.mutant import Mutant

_HTTP = "tests/deployments/http/test_answers.py::"
_STREAM = _HTTP + "test_a_stream_tells_what_the_whole_answer_tells"
_TWO = _HTTP + "test_two_connections_tell_what_one_would_have"
_TEXT = "tests/deployments/text/answers/"
_READ = _TEXT + "test_reading.py::"
_CUT = _READ + "test_an_answer_is_split_alike_wherever_it_is_cut"

MUTANTS = (
    Mutant(
        name="marks-stay-hidden",
        path="deployments/ingress/output.py",
        old="view=replace(ask.view, hidden_tokens=self._hidden),",
        new="view=ask.view,",
        breaks="reasoning of models with marks that are special tokens is content",
        killed_by=_STREAM,
    ),
    Mutant(
        name="reasoning-counted-from-the-cut",
        path="deployments/ingress/output.py",
        old="(*piece.told_offsets, *piece.text_offsets)",
        new="piece.text_offsets",
        breaks="a resumed stream counts fewer tokens of reasoning",
        killed_by=_TWO,
    ),
    Mutant(
        name="hidden-reasoning-shows-its-tokens",
        path="deployments/api/http/responses.py",
        old="            if not choice.answer.hides_tokens:\n",
        new="            if True:\n",
        breaks="the IDs spell the reasoning that the client must not have",
        killed_by=_HTTP + "test_hidden_reasoning_shows_no_tokens",
    ),
    Mutant(
        name="content-beside-reasoning-is-empty",
        path="deployments/api/http/responses.py",
        old="bool(parsed.calls) or self.answer.has_reasoned",
        new="bool(parsed.calls)",
        breaks="an answer that ends in its reasoning seems to be an empty one",
        killed_by=_STREAM,
    ),
    Mutant(
        name="a-named-call-ends-as-others",
        path="deployments/ingress/output.py",
        old=" and (calls is None or calls.name is None)",
        new="",
        breaks="a client of vLLM that names a function gets another finish reason",
        killed_by=_HTTP + "test_a_named_function_ends_with_stop",
    ),
    Mutant(
        name="empty-chunks-are-sent",
        path="deployments/api/http/responses.py",
        old='return "" if says_nothing(body) else',
        new="return",
        breaks="a client gets a chunk without text for pieces of a call",
        killed_by=_HTTP + "test_nothing_is_sent_while_a_call_is_written",
    ),
    Mutant(
        name="reasoning-of-earlier-turns",
        path="deployments/ingress/output.py",
        old="        if options.begins_in_prompt:\n",
        new="        if True:\n",
        breaks="an answer that the prompt does not begin is read as an earlier turn's reasoning",
        killed_by=_HTTP + "test_an_answer_that_the_prompt_does_not_begin_has_begun_nothing",
    ),
    Mutant(
        name="strings-end-calls",
        path="deployments/text/answers/reading.py",
        old="if not call.strings.is_inside(self._buffer, call.body, mark.start):",
        new="if True:",
        breaks="a call whose argument contains the closing mark is content",
        killed_by=_READ + "test_a_checkpoints_own_template_is_read",
    ),
    Mutant(
        name="content-reasons-again",
        path="deployments/text/answers/reading.py",
        old="return () if self._is_constrained else self._marks.later_regions",
        new="return self._marks.regions",
        breaks="an answer that explains <think> loses its rest to the reasoning",
        killed_by=_CUT,
    ),
    Mutant(
        name="tails-of-calls-are-content",
        path="deployments/text/answers/reading.py",
        old="self._is_after_call = bool(self._marks.tail)",
        new="self._is_after_call = False",
        breaks="the mark that closes a list of calls is told as text",
        killed_by=_READ + "test_a_cut_mark_after_calls_is_no_content",
    ),
    Mutant(
        name="reasoning-of-the-prompt-is-not-counted",
        path="deployments/text/answers/reading.py",
        old="self._reasoning_bounds = [0] if self.begun is Begun.REASONING else []",
        new="self._reasoning_bounds = []",
        breaks="no token counts as reasoning if the chat template opens it",
        killed_by=_READ + "test_tokens_of_reasoning_are_counted",
    ),
    Mutant(
        name="demands-forget-begun-reasoning",
        path="deployments/text/answers/asking.py",
        old="        if begun is Begun.REASONING:\n            return part\n",
        new="",
        breaks="a demanded call replaces the reasoning that the prompt opened",
        killed_by=_TEXT
        + "test_asking.py::test_reasoning_that_the_prompt_opens_ends_before_the_answer",
    ),
)
