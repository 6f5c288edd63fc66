"""JSON schemas by keyword: which answers each allows, and which schemas are refused and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("llguidance")

from deployments.text.schema_source import library_schema
from deployments.text.structured_output import json_schema
from specdec_core.errors import InvalidRequestError
from tests.deployments.text.walks import matcher_of

DATE = {"type": "string", "format": "date"}
NAMED = {"$defs": {"a/b": {"type": "null"}, "c%d": {"const": 3}}}
PETS: Any = {
    "$defs": {
        "cat": {
            "type": "object",
            "properties": {"kind": {"$ref": "#/$defs/tag"}, "n": {"type": "integer"}},
            "required": ["kind", "n"],
        },
        "tag": {"const": "cat"},
        "dog": {
            "type": "object",
            "properties": {"kind": {"enum": ["dog", "wolf"]}, "next": {"$ref": "#/$defs/dog"}},
            "required": ["kind"],
        },
        "pet": {
            "type": "object",
            "properties": {"kind": {"enum": ["cat", "cow"]}},
            "required": ["kind"],
        },
        "any": {"type": "object", "properties": {"kind": {"const": "dog"}}},
        "not": {"properties": {"kind": {"const": "dog"}}, "required": ["kind"]},
    }
}
"""Objects with a tag. `pet` shares one with `cat`, `any` may lack it, `not` may be no object."""
ALLOWED: list[tuple[Any, list[str], list[str]]] = [
    ({"enum": [1.0, -0.0, 9007199254740992]}, ["1", "0", "9007199254740992"], ["1.0", "2"]),
    ({"const": {"a": [True, None, "é"]}}, ['{"a": [true, null, "é"]}'], ['{"a": []}']),
    ({"type": "integer", "maximum": 2**63 - 1}, ["9223372036854774784"], ["9223372036854775808"]),
    ({"type": "integer", "minimum": 2**53 + 1}, ["9007199254740994"], ["9007199254740992"]),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, ["4"], ["3"]),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": False}, ["3"], ["2"]),
    ({"type": "number", "multipleOf": 0.01}, ["0.07", "7", "-1.5"], ["0.075"]),
    ({"type": "string", "pattern": r"^\d$"}, ['"5"'], ['"٣"', '"55"']),
    ({"type": "string", "pattern": "b"}, ['"abc"', '"b"'], ['"a"']),
    ({"type": "string", "pattern": "^b|c$"}, ['"bx"', '"xc"'], ['"xbx"']),
    ({"type": "string", "maxLength": 1}, ['"🙂"', '"\\n"'], ['"ab"']),
    (DATE, ['"2024-02-29"'], ['"2023-02-29"', '"2024-04-31"', '"0000-01-01"', '"1900-02-29"']),
    (DATE | {"pattern": "^2"}, ['"2024-01-01"'], ['"1999-01-01"']),
    ({"type": "integer", "format": "int64"}, ["5"], ['"5"']),
    ({"items": [{"const": 1}], "additionalItems": False, "type": "array"}, ["[1]"], ["[1, 1]"]),
    ({"prefixItems": [{"const": 1}], "items": False, "type": "array"}, ["[1]"], ["[2]", "[1, 1]"]),
    (
        {"type": "array", "minItems": 1, "maxItems": 2.0, "items": True},
        ["[1]"],
        ["[]", "[1, 1, 1]"],
    ),
    (
        {"type": "object", "properties": {"a": {"const": 1}}},
        ['{"a": 1, "b": 2}'],
        ['{"a": 1, "a": 2}', '{"a": 1, "\\u0061": 2}', '{"\\u0061": 2}'],
    ),
    ({"type": "object", "minProperties": 1}, ['{"a": 1}'], ["{}"]),
    ({"type": "object", "minProperties": 2, "required": ["a", "b"]}, ['{"a": 1, "b": 1}'], []),
    ({"type": "object", "maxProperties": 1}, ["{}", '{"a": 1}'], ['{"a": 1, "b": 1}']),
    (
        {
            "type": "object",
            "properties": {"a": {}, "b": {}},
            "additionalProperties": False,
            "minProperties": 1,
        },
        ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 1}'],
        ["{}"],
    ),
    (
        {
            "type": "object",
            "properties": {"s_a": {"type": "string"}},
            "patternProperties": {"^s_": {"maxLength": 3}, "^n": {"type": "null"}},
            "additionalProperties": False,
        },
        ['{"s_a": "abc", "n": null}', '{"s_b": "x"}'],
        ['{"s_a": "abcd"}', '{"n": 1}', '{"x": 1}'],
    ),
    (
        {"type": "object", "properties": {"a": {"const": 1}}, "patternProperties": {".*": {}}},
        ['{"a": 1, "b": 2}'],
        ['{"a": 2}'],
    ),
    (
        {"type": "object", "patternProperties": {r"^(\d|.\w$)": {"type": "null"}}},
        ['{"٣": null, "aé": null, "é": 1}', '{"a\\n": 1}'],
        ['{"٣": 1}', '{"aé": 1}', '{"aé\\n": 1}', '{"\u2028a": 1}'],
    ),
    ({"exclusiveMinimum": -0.0, "type": "number"}, ["0.5"], ["0", "-0", "0.0"]),
    (
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": DATE},
        ['{"a": "2024-01-01"}'],
        ['{"a": 1}'],
    ),
    (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "required": ["b"]},
        ['{"b": 1}', '{"a": 1, "b": 1}'],
        ['{"a": 1}', '{"b": 1, "c": 1}'],
    ),
    ({"type": "object", "propertyNames": {"pattern": "^x"}}, ['{"xy": 1}'], ['{"y": 1}']),
    ({"type": "object", "properties": {"a": {"not": {}}}}, ["{}"], ['{"a": 1}']),
    (NAMED | {"$ref": "#/$defs/a~1b"}, ["null"], ["3"]),
    (NAMED | {"anyOf": [{"$ref": "#/$defs/c%25d"}]}, ["3"], ["null"]),
    ({"definitions": {"x": DATE}, "$ref": "#/definitions/x"}, ['"2024-01-01"'], ['""']),
    ({"properties": {"a": {"$ref": "#"}}, "type": "object"}, ['{"a": {"a": {}}}'], ['{"a": 1}']),
    ({"items": [{"const": 1}, {"$ref": "#/items/0"}], "type": "array"}, ["[1, 1]"], ["[1, 2]"]),
    ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, ["null", "true"], ["1"]),
    (
        PETS | {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]},
        ['{"kind": "cat", "n": 1}', '{"kind": "dog", "next": {"kind": "wolf"}}'],
        ['{"kind": "cat"}', '{"kind": "cow"}', '{"kind": "dog", "next": {"kind": "cat"}}'],
    ),
    (
        PETS | {"properties": {"a": {"oneOf": [{"$ref": "#/$defs/dog"}]}}, "type": "object"},
        ['{"a": {"kind": "dog"}}'],
        ['{"a": {"kind": "cat", "n": 1}}'],
    ),
    ({"allOf": [{"minimum": 2}, {"maximum": 3}], "type": "integer"}, ["2", "3"], ["1", "4"]),
    ({"x-guidance": {"lenient": True}, "uniqueItems": False, "type": "null"}, ["null"], ["1"]),
    ({"title": 1, "default": 2, "examples": 3, "$comment": 4, "type": "null"}, ["null"], ["1"]),
    (True, ["1", '{"a": [null]}'], ["x"]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), ALLOWED, ids=lambda x: json.dumps(x)[:50])
def test_a_schema_allows_what_it_says(schema: Any, good: list[str], bad: list[str]) -> None:
    for answer in (*good, *bad):
        matcher = matcher_of(json_schema(schema))
        taken = matcher.try_consume_tokens(list(answer.encode()))
        fits = taken == len(answer.encode()) and matcher.is_accepting()
        assert fits == (answer in good), answer


DEEP: Any = {"type": "null"}
for _ in range(40):
    DEEP = {"items": DEEP}
REFUSED: list[tuple[Any, str]] = [
    ({"enum": [1234567890123456789]}, "#/enum/0 is 1234567890123456789, which cannot be enforced"),
    ({"properties": {"a/b": {"const": [9007199254740993]}}}, "#/properties/a~1b/const/0"),
    ({"const": 1e23}, r"#/const is 1e\+23"),
    ({"const": "\x01"}, "#/const has a control character"),
    ({"minimum": 2**70}, "#/minimum is out of range"),
    ({"maximum": "3"}, "#/maximum must be a number, got '3'"),
    ({"multipleOf": 0}, "#/multipleOf must be above 0"),
    (
        {"multipleOf": 10**400},
        "which has too many digits",
    ),
    ({"multipleOf": 2**32}, "#/multipleOf is 4294967296, which has too many digits"),
    ({"multipleOf": 0.123456789012}, "#/multipleOf is 0.123456789012, which has too many digits"),
    ({"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]}, "#/allOf/1/multipleOf"),
    ({"minLength": -1}, "#/minLength must be an integer of at least 0"),
    ({"maxItems": 1.5}, "#/maxItems must be an integer"),
    ({"pattern": r"a\b"}, "#/pattern is refused: a word boundary"),
    ({"patternProperties": {"(?i)a": {}}}, "the flag i for the names of properties"),
    ({"patternProperties": {"(?!a)": {}}}, r"#/patternProperties/\(\?!a\) is refused: a negative"),
    ({"patternProperties": {"a": {}, r"\u0061": {}}}, r"u0061 overlaps with another pattern"),
    ({"patternProperties": {"a": {}, "b": {}}}, "no name can match two of the patterns"),
    ({"patternProperties": {str(i): {} for i in range(51)}}, "has 51 patterns, the limit is 50"),
    ({"anyOf": [{"pattern": "a" * 9_000}] * 3}, "#/anyOf/2/pattern is one pattern too many"),
    ({"format": "uri-template"}, "#/format is uri-template, which is not supported"),
    ({"type": "string", "format": "ipv4", "pattern": "^a"}, "no string fits the pattern"),
    ({"type": ["string", "text"]}, "#/type is 'text': known are null, boolean"),
    ({"type": []}, "#/type is empty"),
    ({"enum": []}, "#/enum is empty"),
    ({"required": "a"}, "#/required must be a list"),
    ({"properties": []}, r"#/properties must be an object, got \[\]"),
    ({"properties": {"a": 3}}, "#/properties/a must be an object, got 3"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "'a' is unsatisfiable"),
    ({"type": "object", "minProperties": 2}, "supported up to 1 above the number of required"),
    ({"properties": {"a": {}}, "minProperties": 1}, "beside optional properties"),
    ({"propertyNames": {"minLength": 2}}, "#/propertyNames is supported only as"),
    ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf is supported only if"),
    (PETS | {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/pet"}]}, "oneOf is supported"),
    (PETS | {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/any"}]}, "oneOf is supported"),
    (PETS | {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/not"}]}, "oneOf is supported"),
    ({"not": {"type": "null"}}, "#/not is not supported"),
    ({"if": {}, "then": {}}, "#/if is not supported"),
    ({"uniqueItems": True}, "#/uniqueItems is not supported"),
    ({"contains": {}}, "#/contains is not supported"),
    ({"dependentRequired": {"a": ["b"]}}, "#/dependentRequired is not supported"),
    ({"unevaluatedProperties": False}, "#/unevaluatedProperties is not supported"),
    ({"$dynamicRef": "#a"}, r"#/\$dynamicRef is not supported"),
    ({"properties": {"a": {"$id": "x"}}}, r"#/properties/a/\$id is supported only at the top"),
    ({"$ref": "#/$defs/no"}, "which leads to nothing"),
    ({"$ref": "#anchor"}, "it must lead into this schema"),
    ({"$ref": "https://example.org/schema"}, "it must lead into this schema"),
    ({"$ref": "#"}, "leads back to itself: # -> #"),
    ({"anyOf": [{"$ref": "#"}, {}]}, "leads back"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "leads back"),
    (False, "# is false, which no answer fits"),
    ({"enum": list(range(20_001))}, "more schemas and values than the limit, 20000"),
]


@pytest.mark.parametrize(("schema", "reason"), REFUSED, ids=lambda x: json.dumps(x)[:50])
def test_other_schemas_are_refused_with_the_place(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        matcher_of(json_schema(schema))


@pytest.mark.parametrize("one", [DEEP, {}])
def test_a_chain_of_references_does_not_exhaust_the_stack(one: Any) -> None:
    """The library recurses into each reference that it meets, and would end the process."""
    definitions = {str(i): {"items": {"$ref": f"#/$defs/{i + 1}"}, "x": one} for i in range(5000)}
    definitions["5000"] = {}
    with pytest.raises(InvalidRequestError, match="nested too deeply: the limit is 1000 levels"):
        library_schema({"$ref": "#/$defs/0", "$defs": definitions})
    definitions["400"] = {}
    matcher_of(json_schema({"$ref": "#/$defs/0", "$defs": definitions}))
