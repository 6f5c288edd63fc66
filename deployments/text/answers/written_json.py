"""JSON as a model wrote it: values are kept as texts, so numbers and names stay as written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.text.json_text import read_json_at, skip_space

_WHERE = "the call"


def check_object(text: str) -> str:
    """Return `text` without white space around it. Raises ValueError if it is no JSON object."""
    value, end = read_json_at(text, 0, _WHERE, keeps_numbers=True)
    if not isinstance(value, dict) or skip_space(text, end) < len(text):
        raise ValueError(f"no JSON object: {text:.80}")
    return text[skip_space(text, 0) : end]


def with_text_at(text: str, path: Sequence[str]) -> str:
    """Return JSON in which the value at `path` is a string of JSON.

    `path` names members of objects, also of each object in a list. Raises ValueError or
    InvalidRequestError if `text` is not JSON.
    """
    start = skip_space(text, 0)
    if not path:
        return json.dumps(check_object(text))
    if text[start : start + 1] == "[":
        return f"[{', '.join(with_text_at(one, path) for one in _items(text, start))}]"
    members = _members(text, start)
    if path[0] in members:
        members[path[0]] = with_text_at(members[path[0]], path[1:])
    return f"{{{', '.join(f'{json.dumps(key)}: {value}' for key, value in members.items())}}}"


def _members(text: str, start: int) -> dict[str, str]:
    """Return the texts of an object's values."""
    check_object(text)
    members = dict[str, str]()
    at = skip_space(text, start + 1)
    while text[at] != "}":
        key, at = read_json_at(text, at, _WHERE)
        begin = skip_space(text, skip_space(text, at) + 1)
        _, at = read_json_at(text, begin, _WHERE, keeps_numbers=True)
        members[key] = text[begin:at]
        at = _after_comma(text, at)
    return members


def _items(text: str, start: int) -> list[str]:
    """Return the texts of a list's items."""
    _, end = read_json_at(text, start, _WHERE, keeps_numbers=True)
    if skip_space(text, end) < len(text):
        raise ValueError(f"no JSON list: {text:.80}")
    items = list[str]()
    at = skip_space(text, start + 1)
    while text[at] != "]":
        begin = at
        _, at = read_json_at(text, begin, _WHERE, keeps_numbers=True)
        items.append(text[begin:at])
        at = _after_comma(text, at)
    return items


def _after_comma(text: str, at: int) -> int:
    at = skip_space(text, at)
    return skip_space(text, at + 1) if text[at] == "," else at


def plain_json(text: str, args: Mapping[str, Any]) -> str:
    """Return JSON for a text in a dialect: names without quotes, other quotes, Python's `None`."""
    quotes = [f"{re.escape(a)}(.*?){re.escape(b)}" for a, b in args.get("string_delims", ())]
    # A string takes all text if it does not end, and a name needs no colon: so none is read twice.
    string, unquoted = r'"(?:\\.|[^"\\])*+"?', r"(?P<bare>[^\s{}\[\],:\"<>][^{}\[\],:\"<>]*):?"
    return re.sub("|".join([*quotes, string, unquoted]), _plain, text, flags=re.DOTALL)


def _plain(match: re.Match[str]) -> str:
    text = match[0]
    if match.lastindex is None:
        return text
    if not match.lastgroup:
        return json.dumps(match[match.lastindex], ensure_ascii=False)
    name = match["bare"].rstrip()
    if text.endswith(":"):
        return f"{json.dumps(name, ensure_ascii=False)}:"
    return "null" if name == "None" else text
