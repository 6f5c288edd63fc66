"""docs/architecture.md tells the path of a token as the service runs it."""

from __future__ import annotations

import re

import pytest

from tests.house.token_path import BEGIN, END, NUM_TRACES, PAGE, Function, figures, trace

MOST = (68, 383, 3899)
"""Files, functions and lines of the path. They may only fall."""
WRITE = "run python -m tests.house.token_path --write"


@pytest.fixture(scope="module")
def traces() -> list[list[Function]]:
    return trace(NUM_TRACES)


def told() -> set[tuple[str, str]]:
    """Return the files and functions that the page names."""
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    lines = re.findall(r"^- `([\w/]+\.py)`.*\n.*\n  (`.*`)$", table, flags=re.MULTILINE)
    return {(file, name) for file, names in lines for name in re.findall(r"`([^`]+)`", names)}


def called(functions: list[Function]) -> set[tuple[str, str]]:
    return {(function.file, function.name) for function in functions}


def test_the_page_names_every_function_that_a_request_runs(traces: list[list[Function]]) -> None:
    """Those of all traces: a timer may run during one of them."""
    always = set.intersection(*map(called, traces))
    assert always - told() == set(), WRITE


def test_a_request_runs_every_function_that_the_page_names(traces: list[list[Function]]) -> None:
    ever = set.union(*map(called, traces))
    assert told() - ever == set(), WRITE


def test_the_path_does_not_become_longer(traces: list[list[Function]]) -> None:
    shortest = min(map(figures, traces))
    assert all(one <= most for one, most in zip(shortest, MOST, strict=True)), shortest
