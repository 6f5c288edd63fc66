"""Regexes in Python's notation: the same texts as `re.fullmatch`, or a refusal by name."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("llguidance")

from deployments.text.lark_source import library_lark
from deployments.text.structured_output import json_schema, lark, regex
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec
from tests.deployments.text.walks import matcher_of

TEXTS = ["", "a", "b", "ab", "ba", "xa", "bx", "ac", "k", "K", "kA", "a1", "5", "٣", "_", "é", "\n"]
TEXTS += [
    "555-1234",
    "٣٣٣-٣٣٣٣",
    "x@y.com",
    " ",
    "\u3000",
    "\u212a",
    "-",
    "aa",
    "I",
    "\u0131",
    "a\n",
]
PATTERNS = [r"\d{3}-\d{4}", r"\w+@\w+\.[a-z]{2,}", "^a|b$", "(^a|b)c?$", "(?i)k[a-c]?", "(?i)[^i]"]
PATTERNS += [r"[\s\S]*", r"[^\d]", r"\D", r"[^\D]", r"\W", r"[^\W]", r"\s", r"\S", ".", "(?s).", ""]
PATTERNS += [
    "^^a$$",
    r"\Aa\Z",
    "a{,2}",
    "a??b",
    "(?P<n>a)(?:b)",
    "(?x) a b # c",
    "|a",
    "[]-]",
    "[^a]",
]


def accepts(spec: GrammarSpec, text: str) -> bool:
    matcher = matcher_of(spec)
    taken: int = matcher.try_consume_tokens(list(text.encode()))
    return taken == len(text.encode()) and bool(matcher.is_accepting())


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_regex_means_what_it_means_in_python(pattern: str) -> None:
    r"""But for characters outside ASCII: there `\d` and its like allow less."""
    for text in TEXTS:
        expected = bool(re.fullmatch(pattern, text))
        found = accepts(regex(pattern), text)
        narrower = not text.isascii() or pattern == "(?i)[^i]"
        assert found == expected or (narrower and not found), text


def test_digits_spaces_and_words_are_ascii() -> None:
    assert accepts(regex(r"\d{3}-\d{4}"), "555-1234")
    for pattern, text in ((r"\d", "٣"), (r"\w", "é"), (r"\s", "\u3000"), (r"[^\D]", "٣")):
        assert not accepts(regex(pattern), text)
        schema = json_schema({"type": "string", "pattern": f"^{pattern}$"})
        assert not accepts(schema, f'"{text}"')
    assert accepts(regex(r"[\s\S]"), "\u3000")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)a", "a lookahead"),
        ("(?<=a)a", "a lookahead or lookbehind"),
        ("(?!a)b", "a negative lookahead"),
        ("(?!)", "a negative lookahead"),
        (r"(a)\1", "a backreference"),
        ("(?P<n>a)(?P=n)", "a backreference"),
        ("(a)?(?(1)b|c)", "a conditional group"),
        ("(?>a)", "an atomic group"),
        ("a*+", "a possessive quantifier"),
        (r"a\b", "a word boundary"),
        (r"a\Bb", "a word boundary"),
        ("(?m)^a$", "with the flag m"),
        ("a^b", r"an anchor, \^ or"),
        ("(^a)*", r"an anchor, \^ or"),
        ("(?i)é", "the flag i with characters outside ASCII"),
        (r"[\ud800-\udfff]", "half of a surrogate pair"),
        (r"\p{L}", r"cannot be read: bad escape \\p"),
        ("(" * 150 + "a" + ")" * 150, "nested too deeply: the limit is 100"),
        ("(" * 15_000, "nested too deeply: the limit is 100"),
        ("a" * 20_001, "the regex has 20001 characters, the limit is 20000|one pattern too many"),
        ("a{3,2}", "cannot be read: min repeat greater"),
    ],
)
def test_other_constructs_are_refused_by_name(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        matcher_of(regex(pattern))
    with pytest.raises(InvalidRequestError, match=reason):
        matcher_of(json_schema({"type": "string", "pattern": pattern}))


def test_a_lark_grammar_keeps_its_text_and_its_schemas_are_read_alike() -> None:
    source = 'start: "%json {" /a\\/%json/ x // %json {\nx: "y"'
    assert library_lark(source) == source
    mixed = lark('start: "x" %json {"const": {"a": 1}} "y"')
    assert accepts(mixed, 'x{"a": 1}y')
    assert not accepts(mixed, 'x{"a":1}y')
    for schema, reason in (
        ("{", "not JSON"),
        ('{"const": 9007199254740993}', "2: JSON schema: #/"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            matcher_of(lark(f"start: %json {{}} %json {schema}"))


@pytest.mark.parametrize("option", ["max_tokens=3", 'stop="b"', "temperature=0.5"])
def test_options_that_cannot_be_taken_back_are_refused(option: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not supported in a grammar"):
        matcher_of(lark(f'start: x "c"\nx[{option}]: /b+/'))


def test_a_chain_of_rules_does_not_exhaust_the_stack() -> None:
    rules = "".join(f"r{i}: r{i + 1}\n" for i in range(9000))
    with pytest.raises(InvalidRequestError, match="9002 rules, the limit is 1000"):
        matcher_of(lark(f'start: r0\n{rules}r9000: "a"'))


NEWER = ["\U0001e5f6", "\U00010d40", "\U00010d4a", "\u1c89", "\u00b2", "\u0663"]
"""Digits and letters. Some have come with versions of Unicode that the running Python may lack."""


@pytest.mark.parametrize("char", NEWER)
@pytest.mark.parametrize("source", [r"^\d$", r"^\w$", r"^\s$", r"^\D$", r"^\W$", r"^[^\w]$"])
def test_names_of_properties_have_the_classes_of_this_python(source: str, char: str) -> None:
    properties = {"patternProperties": {source: {"const": 1}}, "additionalProperties": False}
    spec = json_schema({"type": "object", **properties})
    assert accepts(spec, f'{{"{char}": 1}}') == bool(re.search(source, char))
