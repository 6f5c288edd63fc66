"""JSON schemas, rewritten for the grammar library so that each keyword is enforced or refused.

The library reads some keywords otherwise than the standard, and nothing warns of it. So it gets
only the keywords listed here, in the form that it reads right. Annotations and names outside the
standard are left out, as the standard says.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

from deployments.text.regex_source import MAX_REGEX_CHARS
from deployments.text.schema_numbers import (
    NUMBER_KEYWORDS,
    has_common_multiple,
    read_constant,
    read_numbers,
)
from deployments.text.schema_objects import (
    ARRAY_KEYWORDS,
    OBJECT_KEYWORDS,
    read_arrays,
    read_objects,
)
from deployments.text.schema_path import Schema, SchemaPath
from deployments.text.schema_strings import STRING_KEYWORDS, read_strings
from deployments.text.schema_unions import are_disjoint
from specdec_core.errors import InvalidRequestError

JSON_STYLE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}
"""As json.dumps writes it. Free white space invites small models to write nothing else, and a name
with \\u escapes could repeat another name."""
MAX_SCHEMAS = 20_000
"""Maximum number of schemas and constants."""
MAX_LEVELS = 1_000
"""Maximum nesting of schemas, added up over all definitions in use: the library recurses."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_READERS = (
    (NUMBER_KEYWORDS, read_numbers),
    (STRING_KEYWORDS, read_strings),
    (ARRAY_KEYWORDS, read_arrays),
    (OBJECT_KEYWORDS, read_objects),
)
_SIMPLE = {"type"}.union(*(keywords for keywords, _ in _READERS))
REFUSED = {
    "not",
    "if",
    "contains",
    "uniqueItems",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
    "divisibleBy",
}
KEYWORDS = frozenset(_SIMPLE | REFUSED | {"$ref", "const", "enum", "allOf", "anyOf", "oneOf"})
"""Keywords that say which values fit. All others are annotations."""
_UNWRITABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f]")
"""Control characters that have no short escape in JSON."""


def library_schema(schema: Any) -> dict[str, Any]:
    """Return the schema for the library. Raises InvalidRequestError with a JSON pointer."""
    return SchemaDocument(schema).rewritten()


class SchemaDocument:
    """One schema with the definitions that its references lead to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._references = {"#": "#"}
        self._waiting = deque(["#"])
        self._num_schemas = 0
        self._deepest = 0
        self._pattern_chars = 0
        self._multiples: set[float] = set()
        self._same_value: defaultdict[str, set[str]] = defaultdict(set)
        """The references of each definition that are about the same value."""

    def rewritten(self) -> dict[str, Any]:
        done: dict[str, Any] = {}
        num_levels = 0
        while self._waiting:
            pointer = self._waiting.popleft()
            path = SchemaPath.of_definition(self, pointer)
            self._deepest = 0
            done[self._references[pointer]] = path.read(self._target(pointer, path))
            num_levels += self._deepest
            if num_levels > MAX_LEVELS:
                raise path.unsupported(f"is nested too deeply: the limit is {MAX_LEVELS} levels")
        self._check_loops()
        root = done.pop("#")
        if root is False:
            raise SchemaPath.of_definition(self, "#").wrong("is false, which no answer fits")
        definitions = {name.removeprefix("#/$defs/"): one for name, one in done.items()}
        return ({} if root is True else root) | {"$defs": definitions}

    def read(self, schema: Any, path: SchemaPath) -> Any:
        self.count(path)
        if isinstance(schema, bool):
            return schema
        if "not" in path.mapping(schema) and schema["not"] in (True, {}):
            return False
        for keyword in schema.keys() & REFUSED:
            if not _changes_nothing(keyword, schema):
                raise path.at(keyword).unsupported()
        if "$id" in schema and path.keys != ("#",):
            raise path.at("$id").unsupported("is supported only at the top")
        return _read_object(schema, path)

    def constant(self, value: Any, path: SchemaPath) -> Any:
        self.count(path)
        if isinstance(value, dict):
            return {key: self.constant(one, path.at(key)) for key, one in value.items()}
        if isinstance(value, list):
            return [self.constant(one, path.at(i)) for i, one in enumerate(value)]
        if isinstance(value, str) and _UNWRITABLE.search(value):
            raise path.unsupported("has a control character, which cannot be enforced")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return read_constant(value, path)
        return value

    def reference(self, reference: Any, path: SchemaPath) -> str:
        pointer = unquote(path.text(reference))
        self._same_value[path.definition].add(pointer)
        if pointer not in self._references:
            self._target(pointer, path)
            self._references[pointer] = f"#/$defs/{len(self._references)}"
            self._waiting.append(pointer)
        return self._references[pointer]

    def resolved(self, schema: Any, path: SchemaPath) -> Any:
        seen = set[str]()
        while isinstance(schema, dict) and "$ref" in schema:
            pointer = unquote(path.text(schema["$ref"]))
            if pointer in seen:
                raise path.wrong("leads back to itself")
            seen.add(pointer)
            schema = self._target(pointer, path)
        return schema

    def add_pattern(self, source: str, path: SchemaPath) -> None:
        self._pattern_chars += len(source)
        if self._pattern_chars > MAX_REGEX_CHARS:
            raise path.unsupported(
                f"is one pattern too many: all together may have {MAX_REGEX_CHARS} characters"
            )

    def add_multiple(self, value: float, path: SchemaPath) -> None:
        self._multiples.add(value)
        if not has_common_multiple(self._multiples):
            raise path.unsupported("has too many digits beside the other multipleOf")

    def _target(self, pointer: str, path: SchemaPath) -> Any:
        if pointer != "#" and not pointer.startswith("#/"):
            raise path.unsupported(f"is {pointer!r:.60}: it must lead into this schema, as #/... ")
        target = self._root
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise path.wrong(f"is {pointer!r:.60}, which leads to nothing")
        return target

    def _check_loops(self) -> None:
        self._same_value.pop("", None)
        try:
            TopologicalSorter(self._same_value).prepare()
        except CycleError as error:
            loop = " -> ".join(error.args[1])
            raise SchemaPath.of_definition(self, "#").wrong(
                f"has a reference that leads back to itself: {loop:.200}"
            ) from None

    def count(self, path: SchemaPath) -> None:
        self._num_schemas += 1
        self._deepest = max(self._deepest, path.depth)
        if self._num_schemas > MAX_SCHEMAS:
            raise InvalidRequestError(
                f"JSON schema: it has more schemas and values than the limit, {MAX_SCHEMAS}"
            )


def _read_object(schema: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return a schema that is no boolean.

    Combinations keep their order, which is that of an answer's properties. All other keywords stand
    together, since the library reads them as one.
    """
    simple = _read_simple(schema, path)
    extra = simple.pop("allOf", [])
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _SIMPLE and not simple.keys() <= result.keys():
            result |= simple
        elif keyword == "$ref":
            result[keyword] = path.document.reference(value, path.beside(keyword))
        elif keyword == "const":
            result[keyword] = path.document.constant(value, path.at(keyword))
        elif keyword == "enum":
            given = _filled(value, path.at(keyword))
            result[keyword] = [
                path.document.constant(one, path.at(keyword, i)) for i, one in enumerate(given)
            ]
        elif keyword in ("allOf", "anyOf", "oneOf"):
            given = _filled(value, path.at(keyword))
            options = [path.beside(keyword, i).read(one) for i, one in enumerate(given)]
            is_any = keyword == "oneOf" and "anyOf" not in schema and are_disjoint(given, path)
            result["anyOf" if is_any else keyword] = options
    if extra:
        result["allOf"] = result.get("allOf", []) + extra
    return result


def _read_simple(schema: Schema, path: SchemaPath) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if "type" in schema:
        result["type"] = _read_type(schema["type"], path.at("type"))
    for keywords, read in _READERS:
        if not schema.keys().isdisjoint(keywords):
            result |= read(schema, path)
    return result


def _read_type(value: Any, path: SchemaPath) -> str | list[str]:
    names = [value] if isinstance(value, str) else _filled(value, path)
    for name in names:
        if name not in TYPES:
            raise path.wrong(f"is {name!r:.40}: known are {', '.join(TYPES)}")
    return value if isinstance(value, str) else names


def _filled(value: Any, path: SchemaPath) -> list[Any]:
    if not path.items(value):
        raise path.wrong("is empty")
    return path.items(value)


def _changes_nothing(keyword: str, schema: Schema) -> bool:
    value = schema[keyword]
    if keyword == "if":
        return not schema.keys() & {"then", "else"}
    if keyword == "contains":
        return schema.get("minContains") == 0 and "maxContains" not in schema
    return value is (keyword.startswith("unevaluated")) or value == {}
