"""Defects of what is read from answers and told of them."""

from functools import partial

from tests.mutants.mutant import Mutant

_HTTP = "tests/deployments/http/test_answers.py::"
_STREAM = _HTTP + "test_a_stream_tells_what_the_whole_answer_tells"
_TWO = _HTTP + "test_two_connections_tell_what_one_would_have"
_TEXT = "tests/deployments/text/answers/"
_READ = _TEXT + "test_reading.py::"
_CUT = _READ + "test_an_answer_is_split_alike_wherever_it_is_cut"
_in_output = partial(Mutant, path="deployments/ingress/output.py")
_in_responses = partial(Mutant, path="deployments/api/http/responses.py")
_in_reading = partial(Mutant, path="deployments/text/answers/reading.py")

MUTANTS = (
    _in_output(
        name="marks-stay-hidden",
        old="view=replace(ask.view, hidden_tokens=self._hidden),",
        new="view=ask.view,",
        breaks="reasoning of models with marks that are special tokens is content",
        killed_by=_STREAM,
    ),
    _in_output(
        name="reasoning-counted-from-the-cut",
        old="(*piece.told_offsets, *piece.text_offsets)",
        new="piece.text_offsets",
        breaks="a resumed stream counts fewer tokens of reasoning",
        killed_by=_TWO,
    ),
    _in_responses(
        name="hidden-reasoning-shows-its-tokens",
        old="        if not self.answer.hides_tokens:\n",
        new="        if True:\n",
        breaks="the IDs spell the reasoning that the client must not have",
        killed_by=_HTTP + "test_hidden_reasoning_shows_no_tokens",
    ),
    _in_responses(
        name="content-beside-reasoning-is-empty",
        old="bool(parsed.calls) or self.answer.has_reasoned",
        new="bool(parsed.calls)",
        breaks="an answer that ends in its reasoning seems to be an empty one",
        killed_by=_STREAM,
    ),
    _in_output(
        name="a-named-call-ends-as-others",
        old=" and (calls is None or calls.name is None)",
        new="",
        breaks="a client of vLLM that names a function gets another finish reason",
        killed_by=_HTTP + "test_a_named_function_ends_with_stop",
    ),
    _in_responses(
        name="empty-chunks-are-sent",
        old='return "" if says_nothing(body) else',
        new="return",
        breaks="a client gets a chunk without text for pieces of a call",
        killed_by=_HTTP + "test_nothing_is_sent_while_a_call_is_written",
    ),
    _in_output(
        name="reasoning-of-earlier-turns",
        old="        if options.begins_in_prompt:\n",
        new="        if True:\n",
        breaks="an answer that the prompt does not begin is read as an earlier turn's reasoning",
        killed_by=_HTTP + "test_an_answer_that_the_prompt_does_not_begin_has_begun_nothing",
    ),
    _in_reading(
        name="strings-end-calls",
        old="if not call.strings.is_inside(self._buffer, call.body, mark.start):",
        new="if True:",
        breaks="a call whose argument contains the closing mark is content",
        killed_by=_READ + "test_a_checkpoints_own_template_is_read",
    ),
    _in_reading(
        name="content-reasons-again",
        old="return () if self._is_constrained else self._marks.later_regions",
        new="return self._marks.regions",
        breaks="an answer that explains <think> loses its rest to the reasoning",
        killed_by=_CUT,
    ),
    _in_reading(
        name="tails-of-calls-are-content",
        old="self._is_after_call = bool(self._marks.tail)",
        new="self._is_after_call = False",
        breaks="the mark that closes a list of calls is told as text",
        killed_by=_READ + "test_a_cut_mark_after_calls_is_no_content",
    ),
    _in_reading(
        name="reasoning-of-the-prompt-is-not-counted",
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
