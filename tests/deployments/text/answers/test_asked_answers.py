"""Whatever a grammar allows, the reader reads as what was asked."""

from __future__ import annotations

import json
from collections import Counter
from enum import Enum, IntEnum
from random import Random
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from deployments.text.answers.asking import CallsAsked, asked_grammar
from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.mark_text import mark_tokens
from deployments.text.answers.reading import AnswerDelta, Answers, Begun
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.grammar_library import try_grammar

pytest.importorskip("llguidance")

from tests.deployments.text.answers.asked_walks import Walker, marks_of, model_with

REASONING = {
    "hermes": "qwen3",
    "qwen3_coder": "qwen3",
    "glm47": "glm45",
    "openai": "openai_gptoss",
    "deepseek_v31": "deepseek_v3",
}
"""Formats of reasoning that go with formats of calls, where the names differ."""
END_MARKS = {"openai": ("<|call|>", "<|return|>")}


class Color(Enum):
    RED = "red"
    GREEN = "dark green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Spot(BaseModel):
    city: str
    lat: float | None = None
    tags: list[str] = []


class Arguments(BaseModel):
    """What pydantic writes for each kind of field."""

    model_config = ConfigDict(extra="forbid")

    title: str
    count: int = Field(ge=0, le=500)
    ratio: float = 1.0
    flag: bool = False
    note: str | None = None
    color: Color = Color.RED
    level: Level = Level.LOW
    kind: Literal["a", "b", 3] = "a"
    only: Literal["true"] = "true"
    where: Spot | None = None
    spots: list[Spot] = []
    mixed: int | str | list[int] | None = None
    extra: dict[str, int] = {}
    code: str = Field("ab", pattern="^[a-z]{2}$")
    short: str = Field("ab", min_length=2, max_length=4)
    anything: Any = None


SCHEMA = Arguments.model_json_schema()
WHOLE = SCHEMA | {"required": list(SCHEMA["properties"])}
TOOLS = [
    {"type": "function", "function": {"name": "book", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "whole", "parameters": WHOLE}},
    {"type": "function", "function": {"name": "list_all"}},
]


def format_of(calls: str) -> AnswerFormat:
    reasoning = REASONING.get(calls, calls if calls in REASONING_FORMATS else "deepseek_r1")
    return AnswerFormat(calls=CALL_FORMATS[calls], reasoning=REASONING_FORMATS[reasoning])


def prompt_of(answer_format: AnswerFormat, begun: Begun) -> str:
    assert answer_format.reasoning is not None
    opened = f"{answer_format.reasoning.opening}So" if begun is Begun.REASONING else ""
    return answer_format.start_anchors[0] + opened


def found_in(answer_format: AnswerFormat, begun: Begun, answer: str) -> AnswerDelta:
    reader = Answers(answer_format).reader(prompt_of(answer_format, begun), TOOLS)
    assert reader.begun is begun
    found = reader.add(answer)
    return found + reader.flush()


def check_calls(found: AnswerDelta, seen: Counter[str]) -> None:
    assert found.calls
    assert not found.content.strip()
    for call in found.calls:
        arguments = json.loads(call.arguments)
        if call.name == "list_all":
            assert arguments == {}
            continue
        jsonschema.validate(arguments, WHOLE if call.name == "whole" else SCHEMA)
        Arguments.model_validate_json(call.arguments)
        seen.update(arguments.keys())


class Spelled(Enum):
    """Marks that are no tokens."""

    NONE = slice(0, 0)
    EVEN = slice(0, None, 2)
    ODD = slice(1, None, 2)
    ALL = slice(0, None)


def walk_calls(calls: str, begun: Begun, spelled: Spelled, num_walks: int) -> Counter[str]:
    """Walk, read and check. Returns how often each argument was seen."""
    answer_format = format_of(calls)
    ends = END_MARKS.get(calls, ()) if spelled is Spelled.NONE else ()
    marks = [mark for mark in marks_of(answer_format) if mark not in ends]
    as_text = marks[spelled.value]
    tokens = [mark for mark in marks if mark not in as_text]
    text = model_with(tokens, ends=ends, spelled=as_text)
    asked = CallsAsked(TOOLS, is_required=True)
    spec = asked_grammar(answer_format, begun, asked, None, mark_tokens(text))
    assert spec is not None
    try_grammar(spec)
    walker = Walker(text, spec)
    seen: Counter[str] = Counter()
    for number in range(num_walks):
        answer = walker.answer(Random(number))
        if answer is None:
            continue
        seen["finished"] += 1
        try:
            check_calls(found_in(answer_format, begun, answer), seen)
        except Exception as error:
            raise AssertionError(f"walk {number}: {answer!r}") from error
    assert seen["finished"] >= num_walks / 3, seen
    return seen


@pytest.mark.parametrize("begun", [Begun.NOTHING, Begun.REASONING])
@pytest.mark.parametrize("calls", CALL_FORMATS)
def test_a_demanded_call_is_read_and_valid(calls: str, begun: Begun) -> None:
    walk_calls(calls, begun, Spelled.NONE, 3)


@pytest.mark.parametrize("spelled", [Spelled.EVEN, Spelled.ODD, Spelled.ALL])
@pytest.mark.parametrize("calls", CALL_FORMATS)
def test_marks_that_are_no_tokens_are_spelled(calls: str, spelled: Spelled) -> None:
    walk_calls(calls, Begun.NOTHING, spelled, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("spelled", Spelled)
@pytest.mark.parametrize("begun", [Begun.NOTHING, Begun.REASONING])
@pytest.mark.parametrize("calls", CALL_FORMATS)
def test_hundreds_of_demanded_calls_are_read_and_valid(
    calls: str, begun: Begun, spelled: Spelled
) -> None:
    seen = walk_calls(calls, begun, spelled, 200)
    assert seen.keys() >= SCHEMA["properties"].keys()
