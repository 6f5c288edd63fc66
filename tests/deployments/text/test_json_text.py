"""JSON of callers: what cannot be written again is refused, and nothing fails inside."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.text.json_text import MAX_JSON_DEPTH, checked_json, read_json
from specdec_core.errors import InvalidRequestError

DEEPEST = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 90_000, "nested too deeply: the limit is 100"),
        ('{"a":' * 90_000, "nested too deeply"),
        (f"[{DEEPEST}]", "nested too deeply"),
        ("[" * 900 + "]" * 900, "nested too deeply"),
        ("[1", "is not JSON"),
        ("", "is not JSON"),
        ("NaN", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("1e999", "outside the range"),
        ("1" * 5_000, "is not JSON"),
        (r'{"a": ["\ud83d"]}', r"\\ud83d, half of a surrogate pair"),
        (r'{"\udc00": 1}', r"\\udc00"),
    ],
)
def test_untrusted_text_is_refused_by_its_field(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^tools\.0 .*{reason}") as refused:
        read_json(text, "tools.0")
    assert refused.value.param == "tools.0"


@settings(max_examples=30)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_other_text_is_read(value: Any) -> None:
    assert read_json(json.dumps(value), "field") == value


def test_the_deepest_text_and_whole_surrogate_pairs_are_read() -> None:
    assert json.dumps(read_json(DEEPEST, "field")) == DEEPEST
    assert read_json(r'"\ud83d\ude00"', "field") == "\U0001f600"


def test_a_value_that_was_read_elsewhere_is_checked_alike() -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(InvalidRequestError, match="nested too deeply"):
        checked_json(deep, "field")
    with pytest.raises(InvalidRequestError, match="outside the range"):
        checked_json({"a": float("nan")}, "field")
