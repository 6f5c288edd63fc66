"""How the answers to chats are read, and the grammars that their requests demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from deployments.ingress.answer import AnswerOptions, Reading
from deployments.ingress.generation_request import GenerationRequest
from deployments.ingress.request_limits import last_ids
from deployments.text.answers.asking import asked_grammar
from deployments.text.answers.mark_text import MarkTokens, mark_tokens
from deployments.text.answers.prompt_end import prompt_end
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec


class ChatReading:
    """Reads the answers of one model by its format."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self._answers = text.answers
        shown = text.answers.shown_tokens(text.hidden_tokens) if text.answers else frozenset()
        self._hidden = {i: one for i, one in text.hidden_tokens.items() if i not in shown}

    def prepared(
        self, ask: GenerationRequest, prompt_token_ids: Sequence[int]
    ) -> GenerationRequest:
        """Return `ask` with the reading of its answers and the grammar that they must follow.

        Raises InvalidRequestError.
        """
        if ask.answer is None:
            return ask
        self._check_format(ask.answer)
        reading = self._reading(ask, ask.answer, prompt_token_ids)
        if reading is None:
            return ask
        return replace(
            ask,
            reading=reading,
            view=replace(ask.view, hidden_tokens=self._hidden),
            sampling={**ask.sampling, "grammar": self._grammar(ask, reading)},
        )

    def _check_format(self, options: AnswerOptions) -> None:
        has_calls = self._answers is not None and self._answers.has_calls
        if options.calls is not None and options.needs_call and not has_calls:
            asked = "required" if options.calls.name is None else repr(options.calls.name)[:80]
            raise InvalidRequestError(
                f"tool_choice={asked} requires a tool call, but the format of this "
                "model's tool calls is not known. Start the server with "
                "--tool-call-parser, or send tool_choice=auto",
                param="tool_choice",
                code="unsupported_value",
            )

    def _reading(
        self, ask: GenerationRequest, options: AnswerOptions, prompt_token_ids: Sequence[int]
    ) -> Reading | None:
        """Return how to read the answers. None if the text of an answer is its content."""
        answers = self._answers
        if answers is None:
            return None
        if not answers.has_reasoning and not (options.calls and answers.has_calls):
            return None
        end = ""
        if options.begins_in_prompt:
            kept = last_ids(prompt_token_ids, ask.truncate_prompt_tokens)
            end = prompt_end(answers, self._text.decode_all, kept)
        is_constrained = ask.sampling.get("grammar") is not None
        return Reading(
            answers=answers, prompt_end=end, options=options, is_constrained=is_constrained
        )

    def _grammar(self, ask: GenerationRequest, reading: Reading) -> GrammarSpec | None:
        """Return the grammar of the whole answer, with its reasoning and the marks of its
        format."""
        options, content = reading.options, ask.sampling.get("grammar")
        if content is None and not options.needs_call:
            return None
        if content is not None and options.needs_call:
            raise InvalidRequestError(
                f"{content.param} and tool_choice exclude each other", param=content.param
            )
        begun = reading.reader().begun
        return asked_grammar(
            reading.answers.format, begun, options.calls, content, self._mark_tokens
        )

    @cached_property
    def _mark_tokens(self) -> MarkTokens:
        return mark_tokens(self._text)
