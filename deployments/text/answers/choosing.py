"""Chooses the format in which a model's answers are read, and keeps the reason.

Tool calls and reasoning are chosen separately. The first source that names a format wins: the
caller's flag, the checkpoint's own response template, and a fingerprint of its chat template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.fingerprints import (
    CALL_FINGERPRINTS,
    REASONING_FINGERPRINTS,
    Fingerprint,
    format_shown,
)
from deployments.text.answers.formats import CALLS_FIELD, AnswerFormat
from deployments.text.answers.marks import REASONING_FIELDS, marks_of
from deployments.text.answers.parser_names import AUTO, NONE, check_parser
from deployments.text.answers.reasoning_formats import REASONING_FORMATS

OWN = "response_template"
"""Name of the checkpoint's own format."""


class ChosenBy(StrEnum):
    """Source that decided on a format."""

    FLAG = "flag"
    RESPONSE_TEMPLATE = "response_template"
    CHAT_TEMPLATE = "chat_template"
    NOTHING = "nothing"
    """No source names a format."""


_SOURCES = {
    ChosenBy.FLAG: "by flag",
    ChosenBy.RESPONSE_TEMPLATE: "from the checkpoint's response_template",
    ChosenBy.CHAT_TEMPLATE: "from the chat template",
    ChosenBy.NOTHING: "the chat template shows no known format",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Format of tool calls or of reasoning, and the source that decided on it."""

    name: str = NONE
    chosen_by: ChosenBy = ChosenBy.NOTHING
    unread: str | None = None
    """Format that the chat template shows and that this project does not read."""

    @property
    def reason(self) -> str:
        if self.unread is not None:
            return f"the chat template shows {self.unread}, which is not supported"
        return _SOURCES[self.chosen_by]


@dataclass(frozen=True, slots=True)
class ChosenFormats:
    """Formats in which a model's answers are read, with the reasons."""

    calls: Choice = Choice()
    reasoning: Choice = Choice()
    answer_format: AnswerFormat | None = None
    """None: answers are not read, and their whole text is content."""
    problem: str | None = None
    """Mistake in the checkpoint's response template, which is not used for this reason."""

    @property
    def warning(self) -> str:
        return f"the checkpoint's response_template is not valid and is not used: {self.problem}"

    def __str__(self) -> str:
        calls, reasoning = self.calls, self.reasoning
        if calls.reason == reasoning.reason:
            return f"tool calls: {calls.name}, reasoning: {reasoning.name} ({calls.reason})"
        return (
            f"tool calls: {calls.name} ({calls.reason}), "
            f"reasoning: {reasoning.name} ({reasoning.reason})"
        )


def choose(
    template_source: str,
    response_template: Any = None,
    tool_call_parser: str = AUTO,
    reasoning_parser: str = AUTO,
) -> ChosenFormats:
    """Choose the formats of one model's answers.

    `template_source` is the source of the chat template, empty if there is none.
    `response_template` is the checkpoint's own, None if there is none. Raises
    ModelNotSupportedError for an unknown name.
    """
    tool_call_parser = check_parser("tool_call_parser", tool_call_parser)
    reasoning_parser = check_parser("reasoning_parser", reasoning_parser)
    problem = None if response_template is None else _problem(response_template)
    own = {} if response_template is None or problem else response_template["fields"]
    shown_calls = _shown(template_source, CALL_FINGERPRINTS, CALL_FORMATS)
    shown_reasoning = _shown(template_source, REASONING_FINGERPRINTS, REASONING_FORMATS)
    calls = _choice(tool_call_parser, CALLS_FIELD in own, shown_calls)
    reasoning = _choice(
        reasoning_parser, any(name in own for name in REASONING_FIELDS), shown_reasoning
    )
    # A response template has no text for grammars. They take that of the chat template's format.
    written = AnswerFormat(
        reasoning=REASONING_FORMATS.get(_name_of_text(reasoning, shown_reasoning)),
        calls=CALL_FORMATS.get(_name_of_text(calls, shown_calls)),
    )
    if OWN in (calls.name, reasoning.name):
        fields = _own_fields(own, written, calls, reasoning)
        written = replace(written, own_template={**response_template, "fields": fields})
    is_read = written.calls or written.reasoning or written.own_template
    return ChosenFormats(calls, reasoning, written if is_read else None, problem)


def _problem(response_template: Any) -> str | None:
    """Return what is wrong with a checkpoint's response template."""
    try:
        marks_of(AnswerFormat(own_template=response_template), reads_calls=True)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return str(error)
    return None


def _choice(flag: str, is_own: bool, shown: Choice) -> Choice:
    if flag != AUTO:
        return Choice(flag, ChosenBy.FLAG)
    return Choice(OWN, ChosenBy.RESPONSE_TEMPLATE) if is_own else shown


def _shown(source: str, fingerprints: Sequence[Fingerprint], formats: Mapping[str, Any]) -> Choice:
    """Return the choice by the chat template alone."""
    name = format_shown(source, fingerprints)
    if name is None:
        return Choice()
    return Choice(name, ChosenBy.CHAT_TEMPLATE) if name in formats else Choice(unread=name)


def _name_of_text(choice: Choice, shown: Choice) -> str:
    return shown.name if choice.name == OWN else choice.name


def _own_fields(
    own: Mapping[str, Any], written: AnswerFormat, calls: Choice, reasoning: Choice
) -> dict[str, Any]:
    """Return the fields of the checkpoint's template, without a part that another format reads."""
    fields = dict(own)
    if calls.name != OWN:
        fields.pop(CALLS_FIELD, None)
        other = AnswerFormat(calls=written.calls)
        fields |= other.template(reads_calls=True)["fields"] if written.calls else {}
    if reasoning.name != OWN:
        fields = {name: field for name, field in fields.items() if name not in REASONING_FIELDS}
        fields |= written.reasoning.fields if written.reasoning else {}
    return fields
