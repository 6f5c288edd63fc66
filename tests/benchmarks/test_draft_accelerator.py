"""The page says what its results say; a layout's accelerators are those of its name."""

from __future__ import annotations

import pytest

from benchmarks.studies.draft_accelerator.layouts import cost, num_devices, per_device
from benchmarks.studies.draft_accelerator.tables import DOCUMENT, with_tables


def test_the_pages_tables_are_those_of_the_results() -> None:
    text = DOCUMENT.read_text()
    assert text == with_tables(text)


@pytest.mark.parametrize(
    ("layout", "devices"),
    [
        ("4 plain targets", (4.0, 0.0)),
        ("4 colocated", (4.0, 0.0)),
        ("3 targets + 1 draft", (3.0, 1.0)),
        ("2 targets + 2 drafts", (2.0, 2.0)),
        ("3 targets + half a draft", (3.0, 0.5)),
    ],
)
def test_a_layout_is_named_by_its_accelerators(layout: str, devices: tuple[float, float]) -> None:
    assert num_devices(layout) == devices


def test_a_token_costs_what_its_accelerators_cost_meanwhile() -> None:
    """3 at 4 an hour and 1 at 1 are 13 an hour, in which 100 a second make 0.36 million."""
    assert cost("3 targets + 1 draft", 100.0, 4.0, 1.0) == pytest.approx(13 / 0.36)
    assert per_device({"3 targets + half a draft": 35.0}) == {"3 targets + half a draft": 10.0}
