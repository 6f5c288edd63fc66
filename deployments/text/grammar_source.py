"""Grammars from the notation of callers to that of the grammar library llguidance."""

from __future__ import annotations

import json
from typing import Any

from deployments.text.json_text import read_json
from deployments.text.lark_source import library_lark
from deployments.text.regex_source import full_match
from deployments.text.schema_source import JSON_STYLE, library_schema
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec


def library_text(matcher: Any, spec: GrammarSpec) -> str:
    """Return the grammar as the library's `LLMatcher` takes it. Raises InvalidRequestError."""
    try:
        match spec.kind:
            case GrammarKind.REGEX:
                text: str = matcher.grammar_from_regex(full_match(spec.source))
            case GrammarKind.LARK:
                text = matcher.grammar_from_lark(library_lark(spec.source))
            case GrammarKind.JSON_SCHEMA:
                schema = json.dumps(library_schema(read_json(spec.source, "the JSON schema")))
                text = matcher.grammar_from_json_schema(schema, overrides=JSON_STYLE)
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error), param=spec.param, code=error.code) from None
    except ValueError as error:
        raise refusal(str(error), spec) from None
    return text


def refusal(message: str, spec: GrammarSpec) -> InvalidRequestError:
    """Return the error for what the library says about a grammar, in the caller's terms."""
    first_line, _, _ = message.partition("\n")
    _, _, unsatisfied = first_line.partition("Unsatisfiable schema: ")
    reason = f"no value fits the JSON schema: {unsatisfied}" if unsatisfied else first_line
    for words, explanation in _EXPLAINED.items():
        if words in message.lower():
            reason = explanation
            break
    return InvalidRequestError(f"structured output: {reason:.300}", param=spec.param)


_TOO_COMPLEX = "the grammar is too complex"
_EXPLAINED = {
    "regex is empty": "no string fits the pattern, the format and the length of the JSON schema",
    "oneof constraints": "oneOf is supported only if its options exclude each other by their "
    "types, or by different constants of a required property. Use anyOf",
    "min/maxproperties only": "minProperties and maxProperties are not supported beside optional "
    "properties that other schemas add",
    "patternproperty regexes": "patternProperties are supported only if no name can match two of "
    "the patterns",
    "circular references with sibling": "a $ref with other keywords beside it must not lead back "
    "to itself",
    "unable to determine if regex is empty": "a pattern of the JSON schema is too complex",
    "noextension": "nothing can follow the output so far: the grammar has no finite answer",
    "intersection stack level": _TOO_COMPLEX,
    "too large": _TOO_COMPLEX,
    "left-recursive": _TOO_COMPLEX,
    "too many": _TOO_COMPLEX,
    "too big": _TOO_COMPLEX,
    "fuel exhausted": _TOO_COMPLEX,
}
"""Reasons by words of the library's messages."""
