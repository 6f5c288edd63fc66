"""Texts that share a run of words with an excluded one are found, whatever their spelling."""

from __future__ import annotations

import pytest

from specdec_core.training.overlap import OverlapFilter

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"before {LONG} behind",
        "x two three four five six seven eight nine ten eleven twelve thirteen fourteen y",
        LONG.upper().replace(" ", ",\n"),
    ],
)
def test_a_shared_run_of_thirteen_words_is_found(text: str) -> None:
    assert OverlapFilter([LONG]).overlaps(text)


@pytest.mark.parametrize(
    "text",
    [
        "x two three four five six seven eight nine ten eleven twelve thirteen y",
        " ".join(reversed(LONG.split())),
        "",
    ],
)
def test_a_shorter_run_is_not(text: str) -> None:
    assert not OverlapFilter([LONG]).overlaps(text)


def test_a_short_prompt_counts_as_a_whole() -> None:
    excluded = OverlapFilter(["Who wrote Hamlet?"])
    assert excluded.overlaps("tell me, who wrote hamlet")
    assert not excluded.overlaps("who wrote Macbeth?")


def test_nothing_excluded_excludes_nothing() -> None:
    assert not OverlapFilter([]).overlaps(LONG)
    assert not OverlapFilter(["", "?!"]).overlaps(LONG)


def test_the_run_can_be_shortened() -> None:
    assert OverlapFilter([LONG], run=3).overlaps("x five six seven y")
    assert not OverlapFilter([LONG], run=3).overlaps("x five six y")
