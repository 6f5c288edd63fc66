"""Defects of what is read from answers and told of them."""

from tests.mutants.mutant import Mutant

_HTTP = "tests/deployments/http/test_answers.py::"
_STREAM = _HTTP + "test_a_stream_tells_what_the_whole_answer_tells"
_TWO = _HTTP + "test_two_connections_tell_what_one_would_have"

MUTANTS = (
    Mutant(
        name="marks-stay-hidden",
        path="deployments/ingress/chat_reading.py",
        old="view=replace(ask.view, hidden_tokens=self._hidden),",
        new="view=ask.view,",
        breaks="reasoning of models with marks that are special tokens is content",
        killed_by=(_STREAM,),
    ),
    Mutant(
        name="reasoning-counted-from-the-cut",
        path="deployments/ingress/answer.py",
        old="(*piece.told_offsets, *piece.text_offsets)",
        new="piece.text_offsets",
        breaks="a resumed stream counts fewer tokens of reasoning",
        killed_by=(_TWO,),
    ),
    Mutant(
        name="hidden-reasoning-shows-its-tokens",
        path="deployments/http/responses.py",
        old="            if not choice.answer.hides_tokens:\n",
        new="            if True:\n",
        breaks="the IDs spell the reasoning that the client must not have",
        killed_by=(_HTTP + "test_hidden_reasoning_shows_no_tokens",),
    ),
    Mutant(
        name="content-beside-reasoning-is-empty",
        path="deployments/http/response_choice.py",
        old="(bool(found.calls) or self.answer.has_reasoned)",
        new="bool(found.calls)",
        breaks="an answer that ends in its reasoning seems to be an empty one",
        killed_by=(_STREAM,),
    ),
    Mutant(
        name="a-named-call-ends-as-others",
        path="deployments/ingress/answer.py",
        old=" and (calls is None or calls.name is None)",
        new="",
        breaks="a client of vLLM that names a function gets another finish reason",
        killed_by=(_HTTP + "test_a_named_function_ends_with_stop",),
    ),
    Mutant(
        name="empty-chunks-are-sent",
        path="deployments/http/responses.py",
        old="if not choice.answer.is_plain and says_nothing(chunk):",
        new="if choice.answer.is_plain and says_nothing(chunk):",
        breaks="a client gets a chunk without text for pieces of a call",
        killed_by=(_HTTP + "test_nothing_is_sent_while_a_call_is_written",),
    ),
    Mutant(
        name="reasoning-of-earlier-turns",
        path="deployments/ingress/chat_reading.py",
        old="        if options.begins_in_prompt:\n",
        new="        if True:\n",
        breaks="an answer that the prompt does not begin is read as an earlier turn's reasoning",
        killed_by=(_HTTP + "test_an_answer_that_the_prompt_does_not_begin_has_begun_nothing",),
    ),
)
