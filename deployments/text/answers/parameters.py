"""Grammars of arguments that are written one by one, such as `<parameter=city>`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from deployments.text.answers.argument_types import types_of
from deployments.text.answers.argument_values import Values, scalar_texts, unlike, values_of
from deployments.text.answers.formats import ParameterFormat
from deployments.text.answers.mark_text import MarkTokens, text_until
from deployments.text.answers.unmarked_json import UnmarkedJson
from deployments.text.schema_path import Schema, SchemaPath
from deployments.text.schema_source import KEYWORDS, SchemaDocument, library_schema
from specdec_core.errors import InvalidRequestError

_WRITABLE = re.compile(r"[^\s<>\"'{}]+(?: +[^\s<>\"'{}]+)*")
_PLAIN_NAME = re.compile(r"\w+")
"""Names of arguments that can be written within a mark, and before a colon."""
_NOTHING = '""'
_READ = {"type", "properties", "required", "additionalProperties"}
"""Keywords of a function's schema. Properties that it does not list are not written."""


class ParameterRules:
    """Rules of one function's arguments. Names of rules and terminals end with `suffix`.

    Raises InvalidRequestError with a JSON pointer for a schema that cannot be enforced.
    """

    def __init__(
        self,
        written: ParameterFormat,
        schema: Schema,
        tokens: MarkTokens,
        suffix: str,
        texts: dict[str, str],
    ) -> None:
        """`texts` has the parts for texts that earlier functions have written, and gets more."""
        self.lines: list[str] = []
        self._texts = texts
        self._written = written
        self._tokens = tokens
        self._suffix = suffix
        self._document = schema
        top = SchemaPath.of_definition(SchemaDocument(schema), "#")
        self._json = UnmarkedJson(schema, written.quote or written.closing.strip(), top)
        self._write(_checked_object(schema, top), top)

    def _write(self, schema: Schema, top: SchemaPath) -> None:
        properties = top.at("properties").mapping(schema.get("properties", {}))
        required = top.at("required").items(schema.get("required", []))
        for i, name in enumerate(required):
            if name not in properties:
                raise top.at("required", i).unsupported(
                    f"names {name!r:.80}, which is not one of the properties"
                )
        parts: list[tuple[str, bool]] = []
        for number, (name, one) in enumerate(properties.items()):
            if one is False and name not in required:
                continue
            path = top.at("properties", name)
            self._check_name(name, path)
            options = self._options(name, one, path, f"TEXT_{self._suffix}_{number}")
            parts.append((self._argument(options, number), name in required))
        self._join(parts)

    def _argument(self, options: Sequence[str], number: int) -> str:
        """Return the part of a rule for one argument. Only a part that is used twice is a rule."""
        if not self._written.between:
            return f"({' | '.join(options)})"
        rule = f"argument_{self._suffix}_{number}"
        self.lines.append(f"{rule}: {' | '.join(options)}")
        return rule

    def _join(self, parts: Sequence[tuple[str, bool]]) -> None:
        """Write the rule of all arguments, in the schema's order. Each part says if it is needed.

        With a text between arguments, each place has two rules: before and after the first one.
        """
        whole = f"arguments_{self._suffix}"
        between = self._tokens.written(self._written.between)
        if not between:
            sequence = " ".join(part if needed else f"{part}?" for part, needed in parts)
            self.lines.append(f"{whole}: {sequence or _NOTHING}")
            return
        self.lines.append(f"{whole}: first_{self._suffix}_0")
        for number, (rule, needed) in enumerate(parts):
            after = f"{self._suffix}_{number + 1}"
            for prefix, head in (("first", rule), ("later", f"{between} {rule}")):
                skipped = "" if needed else f" | {prefix}_{after}"
                line = f"{prefix}_{self._suffix}_{number}: {head} later_{after}{skipped}"
                self.lines.append(line)
        last = f"{self._suffix}_{len(parts)}"
        self.lines += [f"first_{last}: {_NOTHING}", f"later_{last}: {_NOTHING}"]

    def _options(self, name: str, schema: Any, path: SchemaPath, terminal: str) -> list[str]:
        """Return the ways to write one argument."""
        values = values_of(schema, path)
        if not values.texts:
            return [self._as_json(name, self._json.whole(schema, path))]
        types = types_of(schema, self._document)
        if self._written.quote:
            text = " | ".join(f"({one})" for one in values.texts)
            options = [self._as_text(name, text, terminal)]
            others = self._others(values, path, has_scalars=True)
        elif self._written.other_opening is not None:
            options = [self._as_text(name, unlike(values.texts, types), terminal)]
            others = self._others(values, path, has_scalars=True)
        else:
            scalars = [f"({one})" for one in scalar_texts(values)]
            text = " | ".join([f"({unlike(values.texts, types)})", *scalars])
            options = [self._as_text(name, text, terminal)]
            others = self._others(values, path, has_scalars=False)
        return options if others is None else [*options, self._as_json(name, others)]

    def _others(self, values: Values, path: SchemaPath, *, has_scalars: bool) -> Any:
        """Return the schema of values that are no strings; None if there are none."""
        schemas = [
            self._json.whole(schema, at)
            for at, schema in values.others
            if has_scalars or schema.get("type") in ("object", "array")
        ]
        if has_scalars and values.constants:
            schemas.append({"enum": list(values.constants)})
        if not schemas:
            return None
        return self._json.with_definitions({"anyOf": schemas})

    def _as_text(self, name: str, text: str, terminal: str) -> str:
        written = self._written
        if text not in self._texts:
            closing = written.quote + written.closing
            self._texts[text], line = text_until(text, closing, self._tokens, terminal)
            self.lines.append(line)
        quote = self._tokens.written(written.quote)
        return f"{self._opening(name, written.opening)} {quote} {self._texts[text]}"

    def _as_json(self, name: str, schema: Any) -> str:
        opening = self._opening(name, self._written.other_opening or self._written.opening)
        closing = self._tokens.written(self._written.closing)
        try:
            library_schema(schema)
        except InvalidRequestError as error:
            message = f"argument {name!r:.80}: {error}"
            raise InvalidRequestError(message, code=error.code) from None
        return f"{opening} %json {json.dumps(schema)} {closing}"

    def _opening(self, name: str, opening: str) -> str:
        return self._tokens.written(opening.replace("{key}", name))

    def _check_name(self, name: str, path: SchemaPath) -> None:
        pattern = _PLAIN_NAME if self._written.quote else _WRITABLE
        if not pattern.fullmatch(name):
            raise path.unsupported(
                "has a name that cannot be written in the model's format of tool calls: use "
                "letters, digits and _"
            )


def _checked_object(schema: Schema, top: SchemaPath) -> Schema:
    """Return the schema of all arguments, with its reference followed."""
    if "$ref" in schema:
        schema = top.mapping(top.document.resolved(schema, top))
    for name in sorted(KEYWORDS & schema.keys() - _READ):
        raise top.at(name).unsupported(
            "is not supported for all arguments of a function in the model's format of tool calls"
        )
    if schema.get("type", "object") != "object":
        raise top.at("type").wrong(f"must be object, got {schema['type']!r:.40}")
    return schema
