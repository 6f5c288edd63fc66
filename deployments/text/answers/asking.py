"""Grammars of whole answers: reasoning first, then the calls or the content that are demanded.

A grammar contains the format's marks. So the constraint begins where the answer begins, and stays
a function of the output alone (docs/decisions/0006-structured-output.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.text.answers.formats import AnswerFormat, CallFormat, ReasoningFormat
from deployments.text.answers.mark_text import TERMINALS, MarkTokens, text_until
from deployments.text.answers.parameters import ParameterRules
from deployments.text.answers.reading import Begun
from deployments.text.lark_source import lark_string
from deployments.text.regex_source import full_match
from deployments.text.schema_source import library_schema
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

_MAX_NUMBERED = 16
"""Maximum number of calls in one answer if the format numbers them."""
_PLAIN_NAME = re.compile(r"[^\s<>{}\[\]:\"]{1,256}")
"""Names of functions that can be written without quotes."""
_LAYOUT = r'("\n\n" | "\n")?'
"""Line ends that some models write around their reasoning, and readers leave out."""
_NO_ARGUMENTS = {"type": "object", "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class CallsAsked:
    """Tool calls that a request allows or demands."""

    tools: Sequence[Mapping[str, Any]]
    is_required: bool = False
    """The answer is calls. Otherwise it may be content."""
    name: str | None = None
    """Name of the only function that may be called, once."""
    allows_many: bool = True


def asked_grammar(
    answer_format: AnswerFormat,
    begun: Begun,
    calls: CallsAsked | None,
    content: GrammarSpec | None,
    tokens: MarkTokens,
) -> GrammarSpec | None:
    """Return the grammar of an answer; None if any text is an answer.

    `begun` says what the prompt contains of the answer. `content` is the grammar of an answer
    without calls; required calls take its place. Raises InvalidRequestError.
    """
    if calls is not None and calls.is_required:
        content = None
    elif content is None:
        return None
    reasoning = answer_format.reasoning
    if reasoning is not None and begun is Begun.CONTENT:
        reasoning = None
    rules = _AnswerRules(tokens, reasoning, begun)
    if calls is not None and _may_begin(answer_format, calls, content):
        rules.add_calls(_calls_format(answer_format), calls)
    if content is not None:
        if reasoning is None and not rules.answers:
            return content
        rules.add_content(content)
    param = "tools" if content is None or calls is not None else content.param
    return GrammarSpec(GrammarKind.LARK, rules.source(), param)


def _calls_format(answer_format: AnswerFormat) -> CallFormat:
    if answer_format.calls is None:
        raise InvalidRequestError(
            "tool_choice requires a tool call, but the model's format of tool calls is "
            "not known. Start the server with --tool-call-parser, or send tool_choice=auto",
            param="tool_choice",
        )
    return answer_format.calls


def _may_begin(answer_format: AnswerFormat, calls: CallsAsked, content: GrammarSpec | None) -> bool:
    """Return whether calls are part of the grammar.

    If content may take their place, a call must not begin as an object of JSON does.
    """
    if content is None:
        return True
    written = answer_format.calls
    return written is not None and not (written.before + written.opening).startswith("{")


class _AnswerRules:
    """Rules of one answer, in the order in which they are written."""

    def __init__(self, tokens: MarkTokens, reasoning: ReasoningFormat | None, begun: Begun) -> None:
        self.answers: list[str] = []
        self._tokens = tokens
        self._reasoning = reasoning
        self._marks: list[str] = []
        """Texts that begin reasoning or calls, which free content may not contain."""
        self._texts: dict[str, str] = {}
        """Parts for texts of arguments, by the expression of the text."""
        self._rules: list[str] = []
        self._terminals: list[str] = list(TERMINALS)
        self._start = "" if reasoning is None else self._reasoned(reasoning, begun)

    def source(self) -> str:
        """Return the grammar."""
        start = f"start: {self._start} ({' | '.join(self.answers)})"
        return "\n".join([start, *self._rules, *self._terminals])

    def _reasoned(self, reasoning: ReasoningFormat, begun: Begun) -> str:
        closings = reasoning.fields["reasoning_content"].get("close", ())
        others = [closings] if isinstance(closings, str) else list(closings)
        part, terminal = text_until(
            "ANY", reasoning.closing.lstrip(), self._tokens, "REASONING", others
        )
        self._terminals.append(terminal)
        self._marks.append(reasoning.opening.strip())
        layout = "" if reasoning.content_opening else _LAYOUT
        if reasoning.closing == reasoning.closing.rstrip():
            part = f"{part} {layout}"
        if begun is Begun.REASONING:
            return part
        return f"({layout} {self._tokens.written(reasoning.opening)} {part})?"

    def add_calls(self, written: CallFormat, options: CallsAsked) -> None:
        """Let the answer be calls."""
        tools = [tool["function"] for tool in options.tools]
        if options.name is not None:
            tools = [one for one in tools if one["name"] == options.name]
        if not tools:
            names = ", ".join(str(tool["function"]["name"]) for tool in options.tools)
            raise InvalidRequestError(
                f"tool_choice: there is no tool {options.name!r:.80}, only {names:.200}",
                param="tool_choice",
            )
        self._marks.append((written.before + written.opening).partition("{")[0].strip())
        for number, function in enumerate(tools):
            self._add_arguments(written, function, number)
        is_one = (
            not options.allows_many
            or options.name is not None
            or self._tokens.ends_answer(written.closing)
        )
        calls = self._sequence(written, tools, is_one=is_one)
        before, after = self._tokens.written(written.before), self._tokens.written(written.after)
        self._rules.append(f"calls: {before} {calls} {after}")
        self.answers.append("calls")

    def _add_arguments(self, written: CallFormat, function: Mapping[str, Any], number: int) -> None:
        try:
            schema = _parameters(function)
            if written.parameters is None:
                library_schema(schema)  # a later check could not name the function
                lines = [f"arguments_{number}: %json {json.dumps(schema)}"]
            else:
                lines = ParameterRules(
                    written.parameters, schema, self._tokens, str(number), self._texts
                ).lines
        except InvalidRequestError as error:
            message = f"tools: the parameters of {function['name']:.80}: {error}"
            raise InvalidRequestError(message, param="tools", code=error.code) from None
        except RecursionError:
            raise InvalidRequestError(
                f"tools: the parameters of {function['name']:.80}: schemas are nested too deeply",
                param="tools",
            ) from None
        self._rules += lines

    def _sequence(
        self, written: CallFormat, tools: Sequence[Mapping[str, Any]], *, is_one: bool
    ) -> str:
        """Return the part of a rule for one call or more."""
        if is_one:
            return self._call(written, tools, 0)
        between = self._tokens.written(written.between)
        if "{index}" not in written.opening:
            call = self._call(written, tools, 0)
            return f"{call} ({between} {call})*"
        calls = [self._call(written, tools, number) for number in range(_MAX_NUMBERED)]
        first, *rest = calls
        return " ".join([first, *(f"({between} {call}" for call in rest), ")?" * len(rest)])

    def _call(self, written: CallFormat, tools: Sequence[Mapping[str, Any]], index: int) -> str:
        """Add the rule of the call with this number in the answer, and return its name."""
        closing = self._tokens.written(written.closing)
        openings = [self._tokens.written(_opening(written, one, index)) for one in tools]
        options = [f"{opening} arguments_{i} {closing}" for i, opening in enumerate(openings)]
        self._rules.append(f"call_{index}: {' | '.join(options)}")
        return f"call_{index}"

    def add_content(self, content: GrammarSpec) -> None:
        """Let the answer be content."""
        opening = "" if self._reasoning is None else self._reasoning.content_opening
        self._rules.append(f"content: {self._content(content)}")
        self.answers.append(f"{self._tokens.written(opening)} content".strip())

    def _content(self, content: GrammarSpec) -> str:
        if content.kind is GrammarKind.JSON_SCHEMA:
            return f"%json {content.source}"
        if content.kind is GrammarKind.LARK:
            return f"%lark {{\n{content.source}\n}}"
        try:
            expression = full_match(content.source)
        except InvalidRequestError as error:
            raise InvalidRequestError(str(error), param=content.param, code=error.code) from None
        refused = [f"~(ANY {lark_string(mark)} ANY)" for mark in self._marks if mark]
        self._terminals.append(f"CONTENT: {' & '.join([f'/(?:{expression})/', *refused])}")
        return "CONTENT"


def _opening(written: CallFormat, function: Mapping[str, Any], index: int) -> str:
    """Return the text before the arguments of a call."""
    name = function["name"]
    if "{name}" in written.opening and not _PLAIN_NAME.fullmatch(name):
        raise InvalidRequestError(
            f"tools: the name {name!r:.80} cannot be written in the model's format of tool calls: "
            "use letters, digits, _ and -",
            param="tools",
        )
    values = {
        "{name}": name,
        "{json_name}": json.dumps(name, ensure_ascii=False),
        "{index}": str(index),
    }
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], written.opening)


def _parameters(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a function's arguments; without parameters, that of `{}`.

    Raises InvalidRequestError if arguments may be something else than an object.
    """
    parameters = function.get("parameters")
    if parameters is None:
        return _NO_ARGUMENTS
    kind = parameters.get("type", "object")
    if kind != "object":
        raise InvalidRequestError(f"JSON schema: #/type must be object, got {json.dumps(kind):.40}")
    return {"type": "object", **parameters}
