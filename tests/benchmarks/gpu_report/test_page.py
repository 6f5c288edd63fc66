"""The page says what is known, however little that is."""

from __future__ import annotations

from benchmarks.gpu_report.goals import GOALS, judge
from benchmarks.gpu_report.page import page
from benchmarks.gpu_report.results import Result, Status
from tests.benchmarks.gpu_report.made import good_results, result

ENVIRONMENT = {"gpu": "NVIDIA H100 80GB HBM3", "commit": "abc"}


def page_of(results: dict[str, Result]) -> str:
    judged = judge(results, is_rehearsal=False)
    return page(results, judged, ENVIRONMENT, "the command", is_rehearsal=False)


def test_it_has_every_goal_figure_the_environment_and_the_command() -> None:
    text = page_of(good_results())
    assert all(goal.what in text for goal in GOALS)
    assert text.count("| pass |") == len(GOALS)
    assert all(part in text for part in ("NVIDIA H100 80GB HBM3", "abc", "the command"))
    assert "**kernels**\n\n| work | kernel | share |\n|---|---|---|\n" in text
    assert "| decode alone | gemm<bf16> | 0.8 |" in text
    assert "| taken over planned | 0.98 |" in text


def test_no_result_at_all_is_a_page_as_well() -> None:
    text = page_of({})
    assert text.count("| not measured |") == len(GOALS)
    assert "| roofline |" in text


def test_why_a_step_failed_is_told_within_one_cell() -> None:
    broken = result("speed", status=Status.FAILED, reason="RuntimeError: <CUDA>\nerror | 700")
    text = page_of({"speed": broken})
    assert "RuntimeError: <CUDA> error \\| 700 |" in text
    assert "Nothing was found." in text
