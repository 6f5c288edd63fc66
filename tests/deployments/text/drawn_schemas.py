"""Drawn JSON schemas and regexes: mostly such as people send, some such as nobody should."""

from __future__ import annotations

from random import Random
from typing import Any

NUMBERS = [0, 1, -1, 3, 10, 2.0, 0.1, -0.0, 1.5, -2.25, 1e-7, 99, 1e15, 1e23, 5e-324, 1e300]
INTEGERS = [2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64, 10**30]
TEXTS = ["a", "b", "ab", "a b", "é", "日本", "🙂", 'q"q', "b\\s", "l\nl", "", "\x01", "\x7f", "/"]
NAMES = ["a", "b", "a b", "é", 'q"', "x_1", "x_2", "", "~/", "$ref", "$id", "not", "\t", "\x01"]
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]
FORMATS += ["uri", "int64", "regex", "iri"]
PATTERNS = ["^a", "b$", "^x_", "^[a-c]{1,3}$", r"^\d+$", r"\w", r"^\S+$", "a|^b$", "^(a|b)*$", ""]
PATTERNS += [".", r"^[^\d]$", r"^[^a-z]{2}$", "^é+$", "^[^é]?$", "(?=a)b", r"(a)\1", "^(x_|y)"]
PATTERNS += [r"^\s?a", "[", r"\bb", r"^\d*$", r"\D", r"^[\W_]+$", "(?i)k", r"a\Z"]
PIECES = ["a", "b", "c", "é", "日", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"\.", "-"]
PIECES += ["[a-c]", "[^a-c]", r"[\d_]", r"[^\d]", r"[^\W]", r"[\s\S]", "[a-é]", "[^é\n]", "[]-]"]
REFUSED_PIECES = [
    r"\b",
    "(?=a)",
    "(?!b)",
    "(?<=a)",
    r"(a)\1",
    "a*+",
    "(?>a)",
    "(?i:é)",
    "[",
    "(?P<n>",
]
UNSUPPORTED = {
    "not": {"type": "null"},
    "if": {"type": "string"},
    "contains": {"const": 1},
    "uniqueItems": True,
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {"required": ["b"]}},
    "unevaluatedProperties": False,
    "unevaluatedItems": False,
    "$dynamicRef": "#",
}
HARMLESS = {
    "title": "t",
    "description": 3,
    "default": float(3),
    "examples": [{}],
    "deprecated": True,
    "readOnly": True,
    "$comment": "c",
    "x-guidance": {"lenient": True},
    "nullable": True,
    "uniqueItems": False,
    "unevaluatedProperties": True,
    "not": False,
    "contentEncoding": "base64",
}


class SchemaDraw:
    """Draws one schema with its definitions."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def document(self) -> Any:
        schema = self._schema(3)
        if isinstance(schema, dict):
            schema["$defs"] = {name: self._schema(2) for name in ("x", "y/z")}
            if self._random.random() < 0.1:
                schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        return schema

    def _one(self, *options: Any) -> Any:
        return self._random.choice(options)

    def _few(self, options: Any, at_most: int = 3) -> list[Any]:
        count = self._random.randint(1, min(at_most, len(options)))
        return self._random.sample(list(options), count)

    def _schema(self, depth: int) -> Any:
        if self._random.random() < 0.05:
            return self._one(True, False, {}, {"not": {}})
        schema: dict[str, Any] = {}
        kinds = [self._constants, self._numbers, self._strings]
        if depth > 0:
            kinds += [self._arrays, self._objects, self._objects, self._combined, self._reference]
        for make in self._few(kinds, 1 if self._random.random() < 0.8 else 2):
            schema |= make(depth - 1)
        if self._random.random() < 0.1:
            name = self._one(*HARMLESS)
            schema[name] = HARMLESS[name]
        if self._random.random() < 0.02:
            name = self._one(*UNSUPPORTED)
            schema |= {name: UNSUPPORTED[name]} | ({"then": False} if name == "if" else {})
        entries = list(schema.items())
        self._random.shuffle(entries)
        return dict(entries)

    def _value(self, depth: int = 1) -> Any:
        options: list[Any] = [None, True, False, *NUMBERS, *TEXTS]
        if self._random.random() < 0.03:
            options = INTEGERS
        if depth and self._random.random() < 0.2:
            inner = [self._value(0) for _ in range(self._random.randint(0, 2))]
            return self._one(inner, dict(zip(self._few(NAMES), inner, strict=False)))
        return self._one(*options)

    def _constants(self, _depth: int) -> dict[str, Any]:
        if self._random.random() < 0.3:
            return {"const": self._value()}
        return {"enum": [self._value() for _ in range(self._random.randint(1, 4))]}

    def _numbers(self, _depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self._one("integer", "number", ["number", "null"])}
        limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        for name in self._few(limits, 2) if self._random.random() < 0.6 else ():
            wide = self._random.random() < 0.2
            schema[name] = self._one(*(INTEGERS if wide else NUMBERS), -5, 5, 12.5, -7.75)
        if self._random.random() < 0.3:
            schema["multipleOf"] = self._one(1, 2, 7, 0.01, 0.5, 0.07, 1.1, 1e-7, 10**10, 2.5, 3.0)
        return schema

    def _strings(self, _depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self._one("string", "string", ["string", "boolean"])}
        if self._random.random() < 0.3:
            schema["minLength"] = self._one(0, 1, 2, 3.0)
        if self._random.random() < 0.3:
            schema["maxLength"] = self._one(0, 2, 4, 10**12)
        if self._random.random() < 0.3:
            schema["pattern"] = self._one(*PATTERNS)
        if self._random.random() < 0.3:
            schema["format"] = self._one(*FORMATS)
        return schema

    def _arrays(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"} if self._random.random() < 0.9 else {}
        if self._random.random() < 0.8:
            schema["items"] = self._schema(depth)
        if self._random.random() < 0.3:
            schema["prefixItems"] = [self._schema(depth) for _ in range(self._random.randint(0, 2))]
        if self._random.random() < 0.3:
            schema["minItems"] = self._one(0, 1, 2)
        if self._random.random() < 0.3:
            schema["maxItems"] = self._one(0, 1, 3, 10**9)
        return schema

    def _objects(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object"} if self._random.random() < 0.9 else {}
        if self._random.random() < 0.8:
            schema["properties"] = {name: self._schema(depth) for name in self._few(NAMES)}
        if self._random.random() < 0.5:
            schema["required"] = self._few([*schema.get("properties", {}), "b"])
        if self._random.random() < 0.5:
            schema["additionalProperties"] = self._one(False, False, True, self._schema(depth))
        if self._random.random() < 0.2:
            patterns = [one or "a" for one in self._few(PATTERNS, 2)]  # jsonschema forgets ""
            schema["patternProperties"] = {one: self._schema(depth) for one in patterns}
        if self._random.random() < 0.1:
            schema["propertyNames"] = self._one(
                {"type": "string"}, {"pattern": "^x_"}, {"enum": ["a", "x_1"]}, {"minLength": 2}
            )
        for name in ("minProperties", "maxProperties"):
            if self._random.random() < 0.15:
                schema[name] = self._one(0, 1, 1, 2, 3)
        return schema

    def _combined(self, depth: int) -> dict[str, Any]:
        if self._random.random() < 0.2:
            return {"oneOf": [self._tagged(depth, tag) for tag in self._few("abcc")]}
        name = self._one("anyOf", "anyOf", "allOf", "oneOf")
        return {name: [self._schema(depth) for _ in range(self._random.randint(1, 3))]}

    def _tagged(self, depth: int, tag: str) -> dict[str, Any]:
        tags = self._one({"const": tag}, {"const": tag}, {"enum": [tag, f"{tag}{tag}"]})
        schema = self._objects(depth)
        properties = {"tag": tags} | schema.get("properties", {})
        return schema | {"type": "object", "properties": properties, "required": ["tag"]}

    def _reference(self, _depth: int) -> dict[str, Any]:
        return {"$ref": self._one("#", "#/$defs/x", "#/$defs/y~1z", "#/$defs/x", "#/$defs/no")}


class RegexDraw:
    """Draws one regex."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def expression(self, depth: int = 3) -> str:
        parts = [self._piece(depth) for _ in range(self._random.randint(1, 3))]
        kind = self._random.random()
        if kind < 0.08:
            return f"^{''.join(parts)}"
        if kind < 0.16:
            return f"{''.join(parts)}$"
        return ("|" if kind < 0.3 else "").join(parts)

    def _piece(self, depth: int) -> str:
        random = self._random
        if random.random() < 0.04:
            return random.choice(REFUSED_PIECES)
        piece = random.choice(PIECES)
        if depth and random.random() < 0.4:
            name = f"(?P<g{random.randrange(10**9)}>"
            start = random.choice(["(", "(?:", "(?i:", "(?s:", name])
            piece = f"{start}{self.expression(depth - 1)})"
        return piece + random.choice(["", "", "", "?", "*", "+", "{2}", "{1,3}", "{,2}", "*?"])
