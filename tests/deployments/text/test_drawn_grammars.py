"""Drawn schemas and regexes: a finished answer is right, and what is not supported is named."""

from __future__ import annotations

import datetime
import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from random import Random
from typing import Any

import jsonschema
import pytest

pytest.importorskip("llguidance")

from deployments.text.grammar_source import refusal
from deployments.text.structured_output import json_schema, regex
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec
from tests.deployments.text.drawn_schemas import RegexDraw, SchemaDraw
from tests.deployments.text.walks import matcher_of, walk

_FOREIGN = re.compile(r"NoExtension|recursive|coerce|lenient|guidance|panic|\\x\{|Rust|stack", re.I)
"""Words of the library that no caller should read."""


class _Written(float):
    """A float that knows its text."""

    text = ""

    @classmethod
    def read(cls, text: str) -> _Written:
        one = cls(text)
        one.text = text
        return one


def _multiple_of(_: Any, unit: float, instance: Any, __: Any) -> Iterator[Any]:
    """Exact, as decimal fractions: jsonschema's own check says that 0.07 is no multiple of 0.01."""
    if isinstance(instance, int | float) and not isinstance(instance, bool):
        text = instance.text if isinstance(instance, _Written) else str(instance)
        if Fraction(text) % Fraction(repr(unit)):
            yield jsonschema.ValidationError(f"{text} is no multiple of {unit}")


_BASE = jsonschema.Draft202012Validator
_FORMATS = jsonschema.FormatChecker(["date", "email", "ipv4", "ipv6", "uuid"])
for _name, _type in (("date-time", datetime.datetime), ("time", datetime.time)):
    _FORMATS.checks(_name, raises=ValueError)(
        lambda text, kind=_type: not isinstance(text, str) or bool(kind.fromisoformat(_cut(text)))
    )
_Validator = jsonschema.validators.extend(_BASE, {"multipleOf": _multiple_of})


def _cut(text: str) -> str:
    """A time with at most the six decimals that Python reads."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)


def answers(spec: GrammarSpec, random: Random, seen: Counter[str]) -> Iterator[str]:
    matcher, reason = read(spec)
    if reason:
        check_refusal(spec, reason)
        seen["refused"] += 1
        return
    for _ in range(3):
        answer, reason = walked(spec, matcher.deep_copy(), random)
        if reason:
            assert "$ref" in spec.source, (spec, reason)  # with a recursion that never ends
            check_refusal(spec, reason)
            return
        seen["unfinished" if answer is None else "finished"] += 1
        if answer is not None:
            yield answer.decode()


def read(spec: GrammarSpec) -> tuple[Any, str]:
    """Return a matcher, or why there is none."""
    try:
        return matcher_of(spec), ""
    except InvalidRequestError as error:
        return None, str(error)


def walked(spec: GrammarSpec, matcher: Any, random: Random) -> tuple[bytes | None, str]:
    """Return an answer, or why it ends before its end."""
    try:
        return walk(matcher, random), ""
    except RuntimeError as error:
        return None, str(refusal(str(error), spec))


def check_refusal(spec: GrammarSpec, reason: str) -> None:
    """In the caller's terms."""
    assert not _FOREIGN.search(reason), (spec, reason)
    assert re.search("JSON schema|[Pp]ropert|oneOf|regex|too complex|finite|\\$ref", reason), reason


def check_schemas(cases: range) -> Counter[str]:
    seen = Counter[str]()
    for seed in cases:
        random = Random(seed)
        schema = SchemaDraw(random).document()
        for answer in answers(json_schema(schema), random, seen):
            value = json.loads(answer, parse_float=_Written.read)
            _Validator(schema, format_checker=_FORMATS).validate(value)
    return seen


class _SlowMatchError(Exception):
    """Python's own matcher takes too long: it may try exponentially many ways."""


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raise _SlowMatchError in a match that takes more CPU time. `re` looks for signals."""

    def stop(*_: Any) -> None:
        raise _SlowMatchError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def matches(match: Callable[[str, str], Any], source: str, text: str, seen: Counter[str]) -> bool:
    """Return whether Python agrees. Count the few texts on which it does not come to an end."""
    try:
        with _bounded(1.0):
            return match(source, text) is not None
    except _SlowMatchError:
        seen["unchecked"] += 1
        return True


def check_regexes(cases: range) -> Counter[str]:
    seen = Counter[str]()
    for seed in cases:
        random = Random(seed)
        source = RegexDraw(random).expression()
        for answer in answers(regex(source), random, seen):
            assert matches(re.fullmatch, source, answer, seen), (source, answer)
        as_pattern = json_schema({"type": "string", "pattern": source})
        for answer in answers(as_pattern, random, seen):
            assert matches(re.search, source, json.loads(answer), seen), (source, answer)
    assert seen["unchecked"] <= seen["finished"] / 100, seen
    return seen


CHECKS: list[Callable[[range], Counter[str]]] = [check_schemas, check_regexes]


@pytest.mark.filterwarnings("ignore:Possible :FutureWarning")
@pytest.mark.parametrize("check", CHECKS)
def test_finished_answers_are_right(check: Callable[[range], Counter[str]]) -> None:
    seen = check(range(100))
    assert seen["finished"] > seen["refused"] > 0, seen


@pytest.mark.nightly
@pytest.mark.parametrize("check", CHECKS)
def test_thousands_of_finished_answers_are_right(check: Callable[[range], Counter[str]]) -> None:
    check(range(100, 10_100))
