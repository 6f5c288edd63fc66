"""The page needs nothing beside it and says what is known, however little that is."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.gpu_report.charts import LineChart, bars, nice_top
from benchmarks.gpu_report.content import report
from benchmarks.gpu_report.goals import GOALS
from benchmarks.gpu_report.pages import html, markdown, write_pages
from benchmarks.gpu_report.results import Result, Status
from tests.benchmarks.gpu_report.made import good_results, result

ENVIRONMENT = {"gpu": "NVIDIA H100 80GB HBM3", "commit": "abc"}


def pages(results: dict[str, Result]) -> tuple[str, str]:
    found = report(results, ENVIRONMENT, "python -m benchmarks.gpu_report", is_rehearsal=False)
    return html(found), markdown(found)


def test_both_pages_have_every_goal_the_environment_and_the_command(tmp_path: Path) -> None:
    found = report(good_results(), ENVIRONMENT, "the command", is_rehearsal=False)
    for path in write_pages(found, tmp_path):
        text = path.read_text()
        assert all(goal.what in text for goal in GOALS)
        assert text.count("pass") >= len(GOALS)
        assert all(part in text for part in ("NVIDIA H100 80GB HBM3", "abc", "the command"))


def test_the_page_loads_nothing() -> None:
    page, _ = pages(good_results())
    without_names = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|src=|@import|<link|<script", without_names)


def test_its_charts_are_well_formed() -> None:
    page, _ = pages(good_results())
    charts = re.findall(r"<svg.*?</svg>", page)
    assert len(charts) == 5, "two contexts, two of speed, one profile"
    assert all(ElementTree.fromstring(chart).tag.endswith("svg") for chart in charts)
    assert "gemm&lt;bf16&gt;" in page


def test_no_result_at_all_is_a_page_as_well() -> None:
    for page in pages({}):
        assert page.count("not measured") >= len(GOALS)
        assert "No step has left a figure to draw." in page


def test_why_a_step_failed_is_told_and_escaped() -> None:
    broken = result("speed", status=Status.FAILED, reason="RuntimeError: <CUDA> error | 700")
    page, text = pages({"speed": broken})
    assert "RuntimeError: &lt;CUDA&gt; error | 700" in page
    assert "RuntimeError: <CUDA> error \\| 700" in text


@pytest.mark.parametrize(("largest", "top"), [(0.0, 1.0), (0.97, 1.0), (1.7, 2.0), (8300, 10000)])
def test_an_axis_ends_at_a_round_figure(largest: float, top: float) -> None:
    assert nice_top(largest) == pytest.approx(top)


def test_a_line_is_higher_where_its_figure_is() -> None:
    chart = LineChart(title="t", x_label="rows", lines={"a": {8: 1.0, 1: 0.5}}, goals={8: 0.7})
    circles = ElementTree.fromstring(chart.svg()).iter("{http://www.w3.org/2000/svg}circle")
    places = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles]
    assert places[0][0] < places[1][0], "sizes from left to right"
    assert places[0][1] > places[1][1], "the y axis of SVG points down"
    assert ">goal<" in chart.svg()


def test_bars_are_as_long_as_their_shares() -> None:
    drawn = ElementTree.fromstring(bars("t", [("a", 0.5), ("b", 0.25)]))
    first, second = (
        float(r.attrib["width"]) for r in drawn.iter("{http://www.w3.org/2000/svg}rect")
    )
    assert first == pytest.approx(2 * second)
