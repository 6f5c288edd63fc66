"""The keywords of JSON schemas for strings; `format` is enforced, refused, or an annotation."""

from __future__ import annotations

from typing import Any

from deployments.text.regex_source import exact_match, search_match
from deployments.text.schema_numbers import read_count
from deployments.text.schema_path import Schema, SchemaPath
from specdec_core.errors import InvalidRequestError

STRING_KEYWORDS = ("minLength", "maxLength", "pattern", "format")

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_PATTERNS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}
"""Formats that the library reads too loosely: it knows no leap years."""
_LIBRARY_FORMATS = ("duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
_UNKNOWN_TO_LIBRARY = (
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
)
"""The other formats of the standard."""


def read_strings(schema: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return the keywords for strings. `allOf` is added for a second pattern."""
    result: dict[str, Any] = {}
    for name in ("minLength", "maxLength"):
        if name in schema:
            is_maximum = name == "maxLength"
            result[name] = read_count(schema[name], path.at(name), is_maximum=is_maximum)
    if "format" in schema:
        result |= _read_format(schema["format"], path.at("format"))
    if "pattern" in schema:
        if "pattern" in result:
            result["allOf"] = [{"pattern": result["pattern"]}]
        result["pattern"] = read_pattern(schema["pattern"], path.at("pattern"))
    return result


def read_pattern(source: Any, path: SchemaPath, *, is_name: bool = False) -> str:
    """Return a regex that is searched in a string, or in the name of a property.

    Names that do not match are allowed otherwise, so the match must be exact.
    """
    path.document.add_pattern(path.text(source), path)
    try:
        return (exact_match if is_name else search_match)(source)
    except InvalidRequestError as error:
        message = f"JSON schema: {path.pointer} is refused: {error}"
        raise InvalidRequestError(message, code=error.code) from None


def _read_format(name: Any, path: SchemaPath) -> dict[str, Any]:
    """Return the keywords that enforce a `format`. Other names, such as int64, are annotations."""
    if path.text(name) in _UNKNOWN_TO_LIBRARY:
        enforced = ", ".join(sorted((*_PATTERNS, *_LIBRARY_FORMATS)))
        raise path.unsupported(f"is {name}, which is not supported. Supported are {enforced}")
    if name in _PATTERNS:
        return {"pattern": _PATTERNS[name]}
    return {"format": name} if name in _LIBRARY_FORMATS else {}
