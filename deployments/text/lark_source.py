"""Lark grammars, checked for what the grammar library would misread or could not survive."""

from __future__ import annotations

import json
import re
from typing import Any

from deployments.text.json_text import read_json_at
from deployments.text.schema_source import JSON_STYLE, library_schema
from specdec_core.errors import InvalidRequestError

MAX_RULES = 1_000
"""Maximum number of rules: the library recurses into the rules that a rule names."""

_ANY_TOKEN = "<[256]>"

_TOKEN = re.compile(
    r"""
    (?P<skipped> "(?:\\.|[^"\\\n])*" | (?://|\#)[^\n]* | /(?:\\.|[^/\\])+/ )
    | (?P<token> <[^<>\s]+> )
    | (?P<json> %json\b )
    | (?P<rule> :+ )
    | \b(?P<option> max_tokens | temperature | stop )\s*=
    """,
    re.VERBOSE | re.DOTALL,
)


def lark_string(text: str) -> str:
    """Return the notation of a text in a grammar: JSON's, without control characters."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def over_bytes(source: str) -> str:
    """Return the grammar with one special token in place of all others.

    A tokenizer of bytes alone has this one, so the rest of the grammar can be checked with it.
    """
    return _TOKEN.sub(lambda match: _ANY_TOKEN if match["token"] else match[0], source)


def library_lark(source: str) -> str:
    """Return the grammar for the library, with its JSON schemas rewritten.

    Raises InvalidRequestError.
    """
    parts: list[str] = []
    done, num_rules, num_schemas = 0, 0, 0
    while match := _TOKEN.search(source, done):
        parts.append(source[done : match.end()])
        done = match.end()
        if match["option"]:
            raise InvalidRequestError(
                f"the Lark option {match['option']} is not supported in a grammar",
                code="unsupported_value",
            )
        if match["json"]:
            num_schemas += 1
            schema, done = read_json_at(source, done, f"%json number {num_schemas}")
            parts.append(_json(schema, num_schemas))
        num_rules += bool(match["rule"])
    if num_rules > MAX_RULES:
        raise InvalidRequestError(f"the grammar has {num_rules} rules, the limit is {MAX_RULES}")
    return "".join((*parts, source[done:]))


def _json(schema: Any, number: int) -> str:
    try:
        return " " + json.dumps(library_schema(schema) | {"x-guidance": JSON_STYLE})
    except InvalidRequestError as error:
        raise InvalidRequestError(f"%json number {number}: {error}", code=error.code) from None
